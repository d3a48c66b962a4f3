"""The Ray actor on a node: it starts one program, passes bytes in both directions, and receives folders.

The program, the socket and the messages are those of a program on this machine; they are not interpreted here."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen
from typing import Any

from turnwise.hosts.host import Program
from turnwise.hosts.leftovers import make_folder
from turnwise.hosts.local import merge_environment, read_log, spawn

CHUNK_BYTES = 1 << 20
PREFIX = "turnwise-relay-"
MEMORY = Path("/dev/shm")
MAX_VERSIONS = 2
"""Number of weight folders that are kept; they are named by a number."""


class Relay:
    """One program on this node. Ray calls the methods on one event loop, in the order of submission."""

    def __init__(self) -> None:
        self._root = make_folder(MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir()), PREFIX)
        self._running: Popen[bytes] | None = None
        self._log = self._root / "log"
        self._versions: list[Path] = []

    async def start(self, program: Program) -> int:
        """Start the program; returns its process id on this node."""
        self._log = self._root / program.log.name
        self._running, end = spawn(program.arguments, environment=merge_environment(program), log=self._log)
        self._reader, self._writer = await asyncio.open_connection(sock=end, limit=CHUNK_BYTES)
        return self._running.pid

    async def find_address(self) -> str:
        """Return the address at which other nodes reach this one."""
        from ray.util import get_node_ip_address

        return str(get_node_ip_address())

    async def read(self) -> bytes:
        """Return the program's next output as soon as there is any; empty when it has ended."""
        try:
            return await self._reader.read(CHUNK_BYTES)
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        """Send bytes to the program."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def read_end(self) -> tuple[int | None, str]:
        """Return the program's exit status, None while it runs, and the end of its log."""
        assert self._running is not None
        for _ in range(50):
            if self._running.poll() is not None:
                break
            await asyncio.sleep(0.1)
        return self._running.poll(), read_log(self._log)

    async def holds(self, folder: Path, inode: int) -> bool:
        """Whether another process's folder is this very folder here."""
        try:
            return folder.stat().st_ino == inode
        except OSError:
            return False

    async def receive(self, name: str, files: Mapping[str, Any]) -> Path:
        """Write the files, arrays of bytes by name, into a folder of this actor; returns its path."""
        folder = self._root / name
        folder.mkdir()
        for file, data in files.items():
            (folder / file).write_bytes(memoryview(data))
        if name.isdecimal():
            self._versions.append(folder)
        while len(self._versions) > MAX_VERSIONS:
            shutil.rmtree(self._versions.pop(0), ignore_errors=True)
        return folder

    async def end(self) -> None:
        """End the program and remove the received files."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
        shutil.rmtree(self._root, ignore_errors=True)
