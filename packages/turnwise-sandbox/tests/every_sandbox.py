"""Every implementation of `Sandbox`, each built with one slot; what this machine lacks skips its test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_machines import BUILDERS, fake_sdks

from turnwise_sandbox.bubblewrap import BubblewrapSandbox
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.levels import LEVELS
from turnwise_sandbox.remote.http import TOKEN_VARIABLE, HttpSandbox
from turnwise_sandbox.serve import SandboxServer
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Program

TOKEN = "a-token-for-the-tests-only"
PLAIN_SERVER = """
import asyncio, concurrent.futures.thread, sys
sys.executable, folder, token = sys.argv[1:]
sys.path.insert(0, folder)  # the copy of the package that every user may read
from turnwise_sandbox import LocalSandbox, SandboxServer
from turnwise_sandbox.kernel import syscalls
syscalls.set_identity(65534, 65534)
syscalls.drop_privileges()

async def serve():
    async with LocalSandbox(num_slots=1) as sandbox:
        server = SandboxServer(sandbox, token=token, max_concurrent=1)
        print(await server.start(), flush=True)
        await asyncio.to_thread(sys.stdin.read)  # until the test closes it
        await server.close()

asyncio.run(serve())
"""


@contextlib.asynccontextmanager
async def local(request: pytest.FixtureRequest, **options: Any) -> AsyncIterator[LocalSandbox]:
    sandbox = LocalSandbox(num_slots=1, **options)
    try:
        await sandbox.level()
    except SandboxError as cause:
        pytest.skip(str(cause))
    try:
        yield sandbox
    finally:
        await sandbox.close()


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[HttpSandbox]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, TOKEN)
        client = HttpSandbox(url)
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def served(request: pytest.FixtureRequest) -> AsyncIterator[HttpSandbox]:
    async with local(request) as inner:
        server = SandboxServer(inner, token=TOKEN, max_concurrent=1)
        try:
            async with connected(await server.start()) as client:
                yield client
        finally:
            await server.close()


@contextlib.asynccontextmanager
async def served_by_plain_user(request: pytest.FixtureRequest) -> AsyncIterator[HttpSandbox]:
    if os.geteuid() != 0:
        pytest.skip("the other implementations already run as a plain user")
    python = request.getfixturevalue("plain_python")
    command = [sys.executable, "-c", PLAIN_SERVER, python, str(Path(python).parents[2]), TOKEN]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True, cwd="/") as server:
        assert server.stdout is not None
        url = (await asyncio.to_thread(server.stdout.readline)).strip()
        if not url:
            pytest.skip(f"a plain user has no sandbox: {server.communicate(timeout=10)[1][-500:]}")
        async with connected(url) as client:
            yield client
        server.communicate(timeout=20)


@contextlib.asynccontextmanager
async def bubblewrap(request: pytest.FixtureRequest) -> AsyncIterator[BubblewrapSandbox]:
    try:
        sandbox = BubblewrapSandbox(max_concurrent=1)
        await sandbox.run(Program(code=""))
    except SandboxError as cause:
        pytest.skip(str(cause))
    try:
        yield sandbox
    finally:
        await sandbox.close()


@contextlib.asynccontextmanager
async def rented(request: pytest.FixtureRequest, provider: str) -> AsyncIterator[Any]:
    folder = request.getfixturevalue("tmp_path_factory").mktemp(provider)
    with fake_sdks():
        sandbox = BUILDERS[provider][0](folder=f"{folder}/m", max_concurrent=1, start_s=15.0)
        try:
            yield sandbox
        finally:
            await sandbox.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One implementation, with one slot."""

    build: Callable[[pytest.FixtureRequest], contextlib.AbstractAsyncContextManager[Any]]
    has_sessions: bool = True


KINDS = {
    **{level: Kind(build=partial(local, level=level)) for level in LEVELS[:-1]},
    "strict": Kind(build=lambda request: local(request, mode="strict")),
    "http": Kind(build=served),
    "http, plain user": Kind(build=served_by_plain_user),
    "bubblewrap": Kind(build=bubblewrap, has_sessions=False),
    **{name: Kind(build=partial(rented, provider=name), has_sessions=False) for name in BUILDERS},
}
