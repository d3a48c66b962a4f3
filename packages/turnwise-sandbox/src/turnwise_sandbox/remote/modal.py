"""Programs on machines of Modal, through its SDK (`pip install 'turnwise[modal]'`)."""

from __future__ import annotations

import importlib
import math
from typing import Any

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.remote.credentials import read_credential
from turnwise_sandbox.remote.machine import Machine, MachineSandbox
from turnwise_sandbox.types import Network


def build_modal_sandbox(
    *,
    image: str | None = None,
    app: str = "turnwise-sandbox",
    max_concurrent: int = 50,
    start_s: float = 120.0,
    folder: str = "/tmp/turnwise",
) -> MachineSandbox:
    """A sandbox that runs one-shot programs on Modal. `image` names a registry's image; None takes Modal's Debian with
    Python. `app` names the app of the machines, which is made if it is missing. See `MachineSandbox` for the other
    arguments.

    The token is read from MODAL_TOKEN_ID and MODAL_TOKEN_SECRET. A machine has no network, so "loopback" and "none"
    mean the same. Raises SandboxError if the token or the SDK is missing.
    """
    token = read_credential("MODAL_TOKEN_ID", "Modal"), read_credential("MODAL_TOKEN_SECRET", "Modal")
    try:
        sdk: Any = importlib.import_module("modal")
    except ImportError:
        raise SandboxError("the Modal backend needs its SDK: pip install 'turnwise[modal]'") from None

    async def start(lifetime_s: float, network: Network) -> Machine:
        client = await sdk.Client.from_credentials.aio(*token)
        sandbox = await sdk.Sandbox.create.aio(
            app=await sdk.App.lookup.aio(app, client=client, create_if_missing=True),
            image=sdk.Image.debian_slim() if image is None else sdk.Image.from_registry(image),
            timeout=math.ceil(lifetime_s),
            block_network=True,
            client=client,
        )
        return _ModalMachine(sandbox)

    return MachineSandbox(start, level="modal", max_concurrent=max_concurrent, start_s=start_s, folder=folder)


class _ModalMachine:
    """Implements `Machine`."""

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox

    async def write(self, path: str, content: bytes) -> None:
        await self._sandbox.filesystem.write_bytes.aio(content, path)

    async def execute(self, command: str, *, timeout_s: float) -> int:
        process = await self._sandbox.exec.aio("sh", "-c", command, timeout=math.ceil(timeout_s))
        return int(await process.wait.aio())

    async def read(self, path: str) -> bytes:
        return bytes(await self._sandbox.filesystem.read_bytes.aio(path))

    async def stop(self) -> None:
        await self._sandbox.terminate.aio()
