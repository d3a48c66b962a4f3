"""The part of the `daytona` package that the backend uses, with its names and signatures."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from types import SimpleNamespace

from local_machine import LocalMachine


@dataclass
class DaytonaConfig:
    api_key: str


@dataclass
class CreateSandboxFromSnapshotParams:
    network_block_all: bool
    auto_stop_interval: int
    ephemeral: bool


@dataclass
class CreateSandboxFromImageParams(CreateSandboxFromSnapshotParams):
    image: str


class Machine:
    def __init__(self, machine: LocalMachine) -> None:
        self.machine = machine
        self.fs = self.process = self

    async def upload_file(self, src: bytes, dst: str, timeout: int = 1800) -> None:
        self.machine.write(dst, src)

    async def download_file(self, path: str) -> bytes:
        return self.machine.read(path)

    async def exec(
        self, command: str, cwd: str | None = None, env: dict[str, str] | None = None, timeout: int | None = None
    ) -> SimpleNamespace:
        assert isinstance(timeout, int)
        # Runs no shell, so the command must name one.
        return SimpleNamespace(exit_code=await self.machine.execute(shlex.split(command)), result="")


class AsyncDaytona:
    num_open = 0

    def __init__(self, config: DaytonaConfig) -> None:
        self.config = config
        AsyncDaytona.num_open += 1

    async def create(self, params: CreateSandboxFromSnapshotParams, *, timeout: float = 60) -> Machine:
        image = getattr(params, "image", None)
        assert params.ephemeral
        lifetime_s = 60 * params.auto_stop_interval
        return Machine(
            LocalMachine(
                image=image, lifetime_s=lifetime_s, network=not params.network_block_all, key=self.config.api_key
            )
        )

    async def delete(self, sandbox: Machine) -> None:
        sandbox.machine.stop()

    async def close(self) -> None:
        AsyncDaytona.num_open -= 1
