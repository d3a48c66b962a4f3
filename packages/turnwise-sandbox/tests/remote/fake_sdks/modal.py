"""The part of the `modal` package that the backend uses, with its names and signatures. The asynchronous form of every
method is its attribute `aio`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from local_machine import LocalMachine


def both(function: Callable[..., Awaitable[Any]]) -> SimpleNamespace:
    return SimpleNamespace(aio=function)


async def from_credentials(token_id: str, token_secret: str) -> str:
    return f"{token_id}:{token_secret}"


async def lookup(name: str, *, client: str | None = None, create_if_missing: bool = False) -> str:
    assert client is not None
    assert create_if_missing
    return name


async def create(*args: str, app: str, image: str, timeout: int, block_network: bool, client: str) -> SimpleNamespace:
    assert isinstance(timeout, int)
    machine = LocalMachine(image=image, lifetime_s=timeout, network=not block_network, key=client)

    async def run(*arguments: str, timeout: int | None = None) -> SimpleNamespace:
        assert isinstance(timeout, int)

        async def wait() -> int:
            return await machine.execute(list(arguments))

        return SimpleNamespace(wait=both(wait))

    async def write_bytes(data: bytes, remote_path: str) -> None:
        machine.write(remote_path, data)

    async def read_bytes(remote_path: str) -> bytes:
        return machine.read(remote_path)

    async def terminate() -> None:
        machine.stop()

    files = SimpleNamespace(write_bytes=both(write_bytes), read_bytes=both(read_bytes))
    return SimpleNamespace(exec=both(run), filesystem=files, terminate=both(terminate))


Client = SimpleNamespace(from_credentials=both(from_credentials))
App = SimpleNamespace(lookup=both(lookup))
Sandbox = SimpleNamespace(create=both(create))
Image = SimpleNamespace(debian_slim=lambda: None, from_registry=lambda name: name)
