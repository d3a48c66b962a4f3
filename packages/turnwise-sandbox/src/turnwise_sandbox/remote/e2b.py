"""Programs on machines of E2B, through its SDK (`pip install 'turnwise[e2b]'`)."""

from __future__ import annotations

import importlib
import math
from typing import Any

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.remote.credentials import read_credential
from turnwise_sandbox.remote.machine import Machine, MachineSandbox
from turnwise_sandbox.types import Network


def build_e2b_sandbox(
    *, template: str | None = None, max_concurrent: int = 20, start_s: float = 60.0, folder: str = "/tmp/turnwise"
) -> MachineSandbox:
    """A sandbox that runs one-shot programs on E2B. `template` names the image; None takes E2B's. See `MachineSandbox`
    for the other arguments.

    The key is read from E2B_API_KEY. A machine has no internet, so "loopback" and "none" mean the same. Raises
    SandboxError if the key or the SDK is missing."""
    key = read_credential("E2B_API_KEY", "E2B")
    try:
        sdk: Any = importlib.import_module("e2b")
    except ImportError:
        raise SandboxError("the E2B backend needs its SDK: pip install 'turnwise[e2b]'") from None

    async def start(lifetime_s: float, network: Network) -> Machine:
        sandbox = await sdk.AsyncSandbox.create(
            template=template, timeout=math.ceil(lifetime_s), allow_internet_access=False, api_key=key
        )
        return _E2BMachine(sdk, sandbox)

    return MachineSandbox(start, level="e2b", max_concurrent=max_concurrent, start_s=start_s, folder=folder)


class _E2BMachine:
    """Implements `Machine`."""

    def __init__(self, sdk: Any, sandbox: Any) -> None:
        self._sdk = sdk
        self._sandbox = sandbox

    async def write(self, path: str, content: bytes) -> None:
        await self._sandbox.files.write(path, content)

    async def execute(self, command: str, *, timeout_s: float) -> int:
        try:
            result = await self._sandbox.commands.run(command, timeout=timeout_s)
        except self._sdk.CommandExitException as ended:  # the SDK raises it for every status but 0
            result = ended
        return int(result.exit_code)

    async def read(self, path: str) -> bytes:
        return bytes(await self._sandbox.files.read(path, format="bytes"))

    async def stop(self) -> None:
        await self._sandbox.kill()
