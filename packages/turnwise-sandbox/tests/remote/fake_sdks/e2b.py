"""The part of the `e2b` package that the backend uses, with its names and signatures."""

from __future__ import annotations

from types import SimpleNamespace

from local_machine import LocalMachine


class CommandExitException(Exception):
    def __init__(self, exit_code: int) -> None:
        super().__init__(f"Command exited with code {exit_code}")
        self.exit_code = exit_code


class AsyncSandbox:
    def __init__(self, machine: LocalMachine) -> None:
        self.machine = machine
        self.files = self.commands = self

    @classmethod
    async def create(
        cls,
        template: str | None = None,
        timeout: int | None = None,
        *,
        allow_internet_access: bool | None = None,
        api_key: str | None = None,
    ) -> AsyncSandbox:
        assert isinstance(timeout, int)
        return cls(LocalMachine(image=template, lifetime_s=timeout, network=allow_internet_access, key=api_key))

    async def write(self, path: str, data: bytes) -> None:
        self.machine.write(path, data)

    async def read(self, path: str, format: str = "text") -> bytearray:
        assert format == "bytes"
        return bytearray(self.machine.read(path))

    async def run(self, cmd: str, *, timeout: float | None = 60) -> SimpleNamespace:
        status = await self.machine.execute(["/bin/bash", "-l", "-c", cmd])
        if status:
            raise CommandExitException(status)
        return SimpleNamespace(exit_code=0)

    async def kill(self) -> bool:
        self.machine.stop()
        return True
