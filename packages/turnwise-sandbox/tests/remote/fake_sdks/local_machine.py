"""The machines of the fake SDKs, which are folders and processes of this one, and a list of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

MACHINES: list[LocalMachine] = []
FAIL_AT: set[str] = set()
"""Operations that fail, as if the provider were down."""


class LocalMachine:
    def __init__(self, **options: object) -> None:
        self.options = options
        self.num_stops = 0
        self.written: list[str] = []
        self.process_sessions: set[int] = set()
        MACHINES.append(self)
        check("start")

    def write(self, path: str, content: bytes) -> None:
        check("write")
        self.written.append(path)
        Path(path).write_bytes(content)

    def read(self, path: str) -> bytes:
        check("read")
        return Path(path).read_bytes()

    async def execute(self, arguments: list[str]) -> int:
        check("execute")
        process = await asyncio.create_subprocess_exec(*arguments, stdout=-3, stderr=-3, start_new_session=True)
        self.process_sessions.add(process.pid)
        status = await process.wait()
        return 128 - status if status < 0 else status

    def stop(self) -> None:
        """End the machine's processes and remove its files."""
        self.num_stops += 1
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) in self.process_sessions:
                    os.kill(pid, signal.SIGKILL)
        for archive in self.written:
            Path(archive).unlink()
            shutil.rmtree(archive.removesuffix(".in.tar"), ignore_errors=True)
        check("stop")


def check(operation: str) -> None:
    if operation in FAIL_AT:
        raise ConnectionError(f"{operation}: the provider is down")
