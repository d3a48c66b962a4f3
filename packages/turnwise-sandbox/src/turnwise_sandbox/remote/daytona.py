"""Programs on machines of Daytona, through its SDK (`pip install 'turnwise[daytona]'`)."""

from __future__ import annotations

import importlib
import math
import shlex
from typing import Any

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.remote.credentials import read_credential
from turnwise_sandbox.remote.machine import Machine, MachineSandbox
from turnwise_sandbox.types import Network


def build_daytona_sandbox(
    *, image: str | None = None, max_concurrent: int = 20, start_s: float = 120.0, folder: str = "/tmp/turnwise"
) -> MachineSandbox:
    """A sandbox that runs one-shot programs on Daytona. `image` names a registry's image; None takes Daytona's
    snapshot. See `MachineSandbox` for the other arguments.

    The key is read from DAYTONA_API_KEY. A machine has no network, so "loopback" and "none" mean the same. Raises
    SandboxError if the key or the SDK is missing."""
    key = read_credential("DAYTONA_API_KEY", "Daytona")
    try:
        sdk: Any = importlib.import_module("daytona")
    except ImportError:
        raise SandboxError("the Daytona backend needs its SDK: pip install 'turnwise[daytona]'") from None

    async def start(lifetime_s: float, network: Network) -> Machine:
        client = sdk.AsyncDaytona(sdk.DaytonaConfig(api_key=key))
        # If this process dies, the provider stops the machine after so many idle minutes and then deletes it.
        fields: dict[str, Any] = {
            "network_block_all": True,
            "auto_stop_interval": math.ceil(lifetime_s / 60),
            "ephemeral": True,
        }
        make = sdk.CreateSandboxFromSnapshotParams
        if image is not None:
            make, fields = sdk.CreateSandboxFromImageParams, {"image": image, **fields}
        try:
            return _DaytonaMachine(client, await client.create(make(**fields), timeout=start_s))
        except BaseException:
            await client.close()
            raise

    return MachineSandbox(start, level="daytona", max_concurrent=max_concurrent, start_s=start_s, folder=folder)


class _DaytonaMachine:
    """Implements `Machine`."""

    def __init__(self, client: Any, sandbox: Any) -> None:
        self._client = client
        self._sandbox = sandbox

    async def write(self, path: str, content: bytes) -> None:
        await self._sandbox.fs.upload_file(content, path)

    async def execute(self, command: str, *, timeout_s: float) -> int:
        response = await self._sandbox.process.exec(f"sh -c {shlex.quote(command)}", timeout=math.ceil(timeout_s))
        return int(response.exit_code)

    async def read(self, path: str) -> bytes:
        return bytes(await self._sandbox.fs.download_file(path))

    async def stop(self) -> None:
        try:
            await self._client.delete(self._sandbox)
        finally:
            await self._client.close()
