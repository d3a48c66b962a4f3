"""Programs as children of Ray actors, on this machine or on the nodes of a cluster.

Ray never restarts an actor, as the new one would answer under the old name without its state: an actor that ends closes
its stream, as a program does when it ends, and its user starts another."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from turnwise.core.errors import ConfigError, EngineError, boundary
from turnwise.hosts.host import Program
from turnwise.hosts.local import LOOPBACK
from turnwise.hosts.relay import CHUNK_BYTES, Relay

JOIN_S = 60.0
"""Maximum seconds until a cluster responds and reserves what is requested."""
CALL_S = 600.0
"""Maximum seconds for an actor to start, and for a folder to arrive."""
END_S = 2.0
"""Maximum seconds for an actor to remove its files."""
MAX_FOLDER_BYTES = 39
"""Maximum length of the folder for the files of a cluster that starts here: Linux allows 107 bytes for a socket, of
which Ray's session name takes up to 68."""
NOTHING_KEPT = {"num_cpus": 0}
"""Resources reserved by an actor that replaces another: a node may be gone for good, and waiting for its cores would
never end."""


class RayCluster:
    """Implements `Host`. Starts or joins a cluster when constructed, and leaves it at `close`.

    The Ray connection belongs to the process: one cluster at a time."""

    def __init__(self, address: str, *, num_actors: int, cpus: float, strategy: Literal["PACK", "SPREAD"]) -> None:
        """`address` "local" starts a cluster here, on the loopback interface, that ends with this process. Reserves
        `cpus` cores for each of `num_actors` actors, placed by `strategy`.

        Raises ConfigError if Ray is not installed, the cluster does not answer, or it has too few cores.
        """
        # Ray would copy the working folder of a run under `uv run` to its actors, which need no copy, or refuse it.
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        try:
            import ray
        except ImportError as cause:
            raise ConfigError("scale.ray needs Ray; install turnwise[ray], or leave scale.ray empty") from cause
        self._ray: Any = ray
        what = "Ray cannot be started here" if address == "local" else "no Ray cluster answers there"
        with boundary(ConfigError, f"scale.ray={address!r}: {what}"):
            self._connect(address, num_cpus=max(1, round(num_actors * cpus + 0.5)))
        try:
            self._group = self._reserve(address, num_actors, cpus, strategy)
        except BaseException:
            ray.shutdown()
            raise
        self._places = itertools.count()
        self._num_reserved = num_actors
        self._sent: dict[Path, Any] = {}
        """Files of folders that were put into the object store, by folder."""

    def _connect(self, address: str, *, num_cpus: int) -> None:
        # Ray reports the use of libraries to its makers unless it is told not to.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        if address == "local":
            check_folder()
            # Ray starts workers at niceness 15, at which trainer ranks would starve beside any other load.
            os.environ.setdefault("RAY_worker_niceness", "0")
            self._ray.init(
                num_cpus=num_cpus, include_dashboard=False, _node_ip_address=LOOPBACK, address="local", **quiet
            )
            return
        if address != "auto":
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal():
                raise ConfigError(f"scale.ray={address!r} is not an address; use 'local', 'auto' or 'HOST:PORT'")
            # Ray itself waits for minutes.
            socket.create_connection((host, int(port)), timeout=JOIN_S / 6).close()
        self._ray.init(address=address, **quiet)

    def _reserve(self, address: str, num_actors: int, cpus: float, strategy: str) -> Any:
        from ray.util import placement_group

        group = placement_group([{"CPU": cpus} if cpus else {"CPU": 0.001}] * num_actors, strategy=strategy)
        if not group.wait(timeout_seconds=JOIN_S):
            there = self._ray.cluster_resources().get("CPU", 0)
            raise ConfigError(
                f"scale.ray={address!r} has {there:g} cores in total, and {num_actors} actors with scale.cpus={cpus:g} "
                f"do not fit into its free cores within {JOIN_S:g} s; lower scale.cpus or the number of processes"
            )
        return group

    async def start(self, program: Program) -> tuple[RemoteProgram, socket.socket]:
        """See `Host.start`."""
        ours, theirs = socket.socketpair()
        with boundary(EngineError, f"{program.name} cannot be started on the Ray cluster"):
            actor = self._place()
            try:
                pid = await asyncio.wait_for(_called(actor.start.remote(program)), CALL_S)
                address = await asyncio.wait_for(_called(actor.find_address.remote()), CALL_S)
                remote = RemoteProgram(name=program.name, pid=pid, address=address, actor=actor, cluster=self)
                remote.relay(*await asyncio.open_connection(sock=theirs, limit=CHUNK_BYTES))
                return remote, ours
            except BaseException:
                ours.close()
                theirs.close()
                self.end_actor(actor)
                raise

    def _place(self) -> Any:
        """Return a new actor: in the reserved places first, then on any node."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        place = next(self._places)
        options: dict[str, Any] = {"max_restarts": 0, "max_concurrency": 16, **NOTHING_KEPT}
        if place < self._num_reserved:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=place
            )
        return self._ray.remote(Relay).options(**options).remote()

    async def send(self, actor: Any, folder: Path) -> Path:
        """Return where an actor finds the contents of `folder`: there, or in a copy on its node. Every folder crosses
        the network once per node."""
        if await self.holds(actor, folder):
            return folder
        if folder not in self._sent:
            files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
            read = {name: np.frombuffer(path.read_bytes(), np.uint8) for name, path in files.items()}
            while len(self._sent) > 3:
                del self._sent[next(iter(self._sent))]
            self._sent[folder] = await asyncio.to_thread(self._ray.put, read)
        return Path(await _called(actor.receive.remote(folder.name, self._sent[folder])))

    async def holds(self, actor: Any, folder: Path) -> bool:
        """Whether an actor sees this very folder."""
        return bool(await _called(actor.holds.remote(folder, folder.stat().st_ino)))

    def end_actor(self, actor: Any) -> None:
        """End an actor and, with it, its program; before that it removes the files it received, if it responds."""
        if self._ray.is_initialized():
            self._ray.wait([actor.end.remote()], timeout=END_S)
            self._ray.kill(actor)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._sent.clear()
        if self._ray.is_initialized():
            self._ray.shutdown()


def check_folder() -> None:
    """Raise ConfigError if a path in Ray's own folder would be too long for a socket."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # as Ray chooses it
    if len(os.fsencode(folder)) > MAX_FOLDER_BYTES:
        raise ConfigError(
            f"Ray's folder {folder!r} is too long a path for its sockets; set the environment variable RAY_TMPDIR to a "
            f"path of at most {MAX_FOLDER_BYTES} characters, such as /tmp"
        )


async def _called(reference: Any) -> Any:
    """Return the result of an actor call. Raises EngineError if the actor or its node has ended."""
    from ray.exceptions import RayError

    with boundary(EngineError, "the actor"):
        try:
            return await reference
        except RayError as error:
            raise EngineError(f"the actor: {describe_end(error)}") from error


def describe_end(error: Exception) -> str:
    """Return Ray's message about an actor, without terminal colours; of a traceback only the last line."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    is_traceback = any(line.startswith('File "') for line in lines)
    return f"{type(error).__name__}: {lines[-1] if is_traceback else ' '.join(lines)}"


@dataclass(slots=True, eq=False, kw_only=True)
class RemoteProgram:
    """Implements `RunningProgram`: bytes go through an actor."""

    name: str
    pid: int
    address: str
    actor: Any
    cluster: RayCluster
    exitcode: int | None = None
    log: str = ""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    folders: dict[Path, Path] = field(default_factory=dict)
    """Where the program finds carried folders, by folder here."""

    def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes between these streams and the program until one side ends."""
        self.tasks = [
            asyncio.create_task(self._guard(lambda: self._send(reader), writer)),
            asyncio.create_task(self._guard(lambda: self._receive(writer), writer)),
        ]

    async def _guard(self, work: Callable[[], Awaitable[None]], writer: asyncio.StreamWriter) -> None:
        """End the stream whenever the relay ends, for any reason: the other side then sees an ended program."""
        try:
            await work()
        except EngineError as error:
            self.log = self.log or str(error)
        finally:
            writer.close()

    async def _send(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await _called(self.actor.write.remote(data))

    async def _receive(self, writer: asyncio.StreamWriter) -> None:
        while data := await _called(self.actor.read.remote()):
            writer.write(data)
            await writer.drain()
        self.exitcode, self.log = await _called(self.actor.read_end.remote())

    def kill(self) -> None:
        """See `RunningProgram.kill`."""
        for task in self.tasks:
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                task.cancel()
        self.cluster.end_actor(self.actor)

    def join(self, timeout: float) -> None:
        """See `RunningProgram.join`: killing an actor also ends its program."""

    def read_log(self) -> str:
        """See `RunningProgram.read_log`."""
        return self.log

    async def carry(self, folder: Path) -> Path:
        """See `RunningProgram.carry`."""
        if folder not in self.folders:
            self.folders[folder] = await asyncio.wait_for(self.cluster.send(self.actor, folder), CALL_S)
        return self.folders[folder]
