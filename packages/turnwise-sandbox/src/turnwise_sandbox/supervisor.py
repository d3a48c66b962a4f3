"""The local sandbox: passes programs to preloaded interpreters, keeps cells, and turns their reports into Executions.

    sandbox = LocalSandbox(num_slots=2, require=("net", "fs_read"))
    execution = await sandbox.run(Program(code="print(6 * 7)"))

At most `num_slots` programs run at a time; the others wait. One instance serves one event loop at a time; another loop
may use it after the first has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from turnwise_sandbox import wire
from turnwise_sandbox.cell import CellKind
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.handles import Cell, Zygote, check_ready, describe, wait_for_answer
from turnwise_sandbox.levels import Host, Level, check_required, find_host, verify_level
from turnwise_sandbox.limits_hit import find_limit, read_plain
from turnwise_sandbox.requests import (
    CellKey,
    build_payload,
    build_rlimits,
    build_run,
    check_limits,
    choose_profile,
)
from turnwise_sandbox.session import LocalSession
from turnwise_sandbox.tree_changes import ChangesTooLarge, lay_copy, read_changes
from turnwise_sandbox.tree_store import StoredTree, TreeStore, with_files
from turnwise_sandbox.trees import Manifest, Tree
from turnwise_sandbox.types import Execution, Limit, Limits, Mode, Network, Profile, Program

MAX_RUNS_PER_CELL = 5000
"""Number of programs after which a cell is replaced, so that nothing accumulates in the kernel for long."""

MAX_IDLE_INTERPRETERS = 8
"""Number of interpreters without cells that are kept although they show folders of a tree; each takes some 30 MB."""

MAX_REPEATS = 2
"""How often a program starts again after its cell was killed from outside."""

REPORT_GRACE_S = 10.0
"""Seconds after its program's deadline within which a cell must report; later it counts as broken."""

PAGE_BYTES = 4096
"""Size of a page; a file in memory takes up whole pages."""

MAX_OUTPUT_FILE_BYTES = 16 << 20
"""The largest file that a program can return."""


class CellKilled(SandboxError):
    """Raised if the cell of a program ended for no reason known to the sandbox."""


class LocalSandbox:
    """Isolated execution on this machine, without Docker or root."""

    def __init__(
        self,
        *,
        num_slots: int | None = None,
        mode: Mode = "slot",
        level: str = "auto",
        require: Iterable[str] = (),
        allow_unsafe: bool = False,
        max_sessions: int = 4096,
    ) -> None:
        """Run `num_slots` programs at a time; None means one per processor. A `level` other than "auto" is used
        exactly, never replaced by another. `require` names properties (see `turnwise sandbox doctor`) that must be
        enforced and verified before anything runs. `allow_unsafe` permits level "none", which isolates nothing.
        `max_sessions` bounds the sessions that are open at the same time.

        The constructor starts nothing. The first use probes the machine and raises SandboxError if a requirement fails.
        """
        self._num_slots = num_slots or len(os.sched_getaffinity(0))
        self._mode = mode
        self._wanted = level
        self._require = tuple(require)
        self._allow_unsafe = allow_unsafe
        self._max_sessions = max_sessions
        self._loop: asyncio.AbstractEventLoop | None = None
        self._host: Host | None = None
        self._level: Level | None = None
        self._zygotes: dict[tuple[str, tuple[str, ...]], Zygote] = {}
        """Zygotes by profile and by the folders that they show."""
        self._store: TreeStore | None = None
        self._idle: dict[CellKey, list[Cell]] = {}
        self._cells: set[Cell] = set()
        self._sessions: set[LocalSession] = set()
        self._closed = False
        self._spent_s = 0.0

    # -------------------------------------------------------------------------------------------- public

    async def level(self) -> Level:
        """The level and its properties as tested. Starts the sandbox if it is not running; raises SandboxError."""
        await self._start()
        assert self._level is not None
        return self._level

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - frozen
        """Run one program. See `Sandbox.run`."""
        async with self._hold(1, limits):
            return await self._run_one(program, limits)

    async def run_pair(
        self,
        worker: Program,
        grader: Program,
        limits: Limits = Limits(),  # noqa: B008
    ) -> tuple[Execution, Execution]:
        """Run two programs at once. Each holds one end of a stream socket as descriptor 4; they share nothing else.

        The pair takes two slots, or the only one. When the grader ends, the worker is stopped, which does not count as
        a limit it hit. Raises SandboxError when the sandbox fails."""
        async with self._hold(min(2, self._num_slots), limits):
            for attempt in range(MAX_REPEATS):
                with contextlib.suppress(CellKilled):  # both programs left nothing behind and can start again
                    return await self._run_both(worker, grader, limits, fresh=attempt > 0)
                if self._closed:
                    break
            return await self._run_both(worker, grader, limits, fresh=True)

    async def run_beside(self, program: Program, limits: Limits, channel: socket.socket) -> Execution:
        """Run one program in a cell of its own, with `channel` as its descriptor 4, for a caller that holds the other
        end of the socket. Closes `channel`. `guest.endpoint` uses it to pass out a listening socket, so that the
        program reaches a server.

        A program whose cell was killed from outside does not start again, because its caller has seen a part of it:
        raises CellKilled. Raises SandboxError when the sandbox fails."""
        with channel:
            async with self._hold(1, limits):
                return await self._run_one(program, limits, peer=channel, fresh=True)

    async def _run_both(
        self, worker: Program, grader: Program, limits: Limits, *, fresh: bool
    ) -> tuple[Execution, Execution]:
        """Run a pair once, with `fresh` in new cells; the caller holds its slots. Raises CellKilled."""
        ours, theirs = socket.socketpair()
        running: list[Cell] = []
        try:
            halves = (
                self._run_one(worker, limits, peer=ours, running=running, fresh=fresh),
                self._run_one(grader, limits, peer=theirs, fresh=fresh),
            )
            tasks = [asyncio.ensure_future(half) for half in halves]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done():
                    tasks[0].result()  # a worker that did not run leaves the grader waiting for its own deadline
                grader_execution = await tasks[1]
                if not tasks[0].done():
                    for cell in running:
                        _stop(cell)
                return await tasks[0], grader_execution
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            ours.close()
            theirs.close()

    async def open(
        self,
        language: Literal["python", "bash"] = "python",
        *,
        limits: Limits = Limits(),  # noqa: B008
        seed: int = 0,
        profile: Profile = "std",
        network: Network = "none",
        tree: Tree | None = None,
    ) -> LocalSession:
        """Start a live session in a cell of its own. See `Sandbox.open`."""
        check_limits(limits)
        await self._start()
        if len(self._sessions) >= self._max_sessions:
            raise SandboxError(
                f"{len(self._sessions)} sessions are open, the maximum for this sandbox; close some, or raise "
                "max_sessions"
            )
        profile = "std" if profile == "auto" else profile
        async with self._stored(tree) as stored:
            cell = await self._spawn(self._key(profile, network, limits, stored), "host", stored)
        session = LocalSession(
            cell,
            language=language,
            limits=limits,
            seed=seed,
            level=self._name,
            on_close=self._forget_session,
            reopen=self._reopen,
        )
        self._sessions.add(session)
        try:
            await session.start()
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """End every program, session and process, and remove their folders and cgroups. A second call does nothing."""
        self._closed = True
        for session in list(self._sessions):
            await session.close()
        self._release()

    def _release(self) -> None:
        """End every process and close the host. Also used when the start fails, after which no caller calls `close`."""
        for cell in list(self._cells):
            self._drop(cell)
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes, self._idle, self._store = {}, {}, None
        if self._host is not None:
            self._host.close()
            self._host = None

    def processor_seconds(self) -> float:
        """Processor time used so far by zygotes, cells and the programs that ended in them; for benchmarks."""
        cells = sum(cell.processor_seconds() for cell in self._cells)
        return self._spent_s + cells + sum(zygote.processor_seconds() for zygote in self._zygotes.values())

    async def __aenter__(self) -> LocalSandbox:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -------------------------------------------------------------------------------------------- starting

    @property
    def _name(self) -> str:
        assert self._host is not None
        return self._host.level

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise SandboxError("this sandbox is closed; build a new one")
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed() and self._loop.is_running():
                raise SandboxError("this sandbox is used by another running event loop; build one per loop")
            self._loop = loop
            self._places = asyncio.Semaphore(self._num_slots)
            self._starting = asyncio.Lock()
            self._line = asyncio.Lock()
            for zygote in self._zygotes.values():
                zygote.attach(loop)
            for cell in self._cells:
                cell.attach(loop)
        async with self._starting:
            if self._host is None:
                self._host = find_host(self._wanted, allow_unsafe=self._allow_unsafe)
                self._store = TreeStore(self._host.store, has_overlay=self._host.trees == "overlay")
            if self._level is None:
                try:
                    # Canaries take the same path as programs.
                    level = await verify_level(self._host, self._run_one)
                    check_required(level, self._require)
                except BaseException:
                    self._release()
                    raise
                self._level = level

    async def _zygote(self, key: CellKey) -> Zygote:
        assert self._host is not None
        assert self._loop is not None
        which = key.profile, key.visible
        zygote = self._zygotes.pop(which, None)
        if zygote is None or not zygote.alive:
            self._make_room()
            zygote = Zygote(self._host.zygote_config(*which))
            zygote.attach(self._loop)
        self._zygotes[which] = zygote
        await zygote.wait_ready()
        return zygote

    def _make_room(self) -> None:
        """Of the interpreters that show folders and have no cells, end the least recently used ones."""
        used = {(cell.key.profile, cell.key.visible) for cell in self._cells}
        idle = [which for which, one in self._zygotes.items() if which[1] and which not in used and one.is_ready]
        for which in idle[: max(0, len(idle) - MAX_IDLE_INTERPRETERS + 1)]:
            self._zygotes.pop(which).close()

    # -------------------------------------------------------------------------------------------- cells

    def _key(self, profile: str, network: Network, limits: Limits, tree: StoredTree | None) -> CellKey:
        visible = tree.visible if tree is not None else ()
        return CellKey(
            profile, network, limits.disk_bytes, limits.num_files, limits.memory_bytes, limits.num_pids, visible
        )

    @contextlib.asynccontextmanager
    async def _stored(self, tree: Tree | None) -> AsyncIterator[StoredTree | None]:
        """Hold the layers of a tree in the store; does nothing for no tree."""
        if tree is None:
            yield None
            return
        assert self._store is not None
        store = self._store
        stored = await store.take(tree)
        try:
            yield stored
        finally:
            store.release(stored)

    async def _reopen(self, session: LocalSession) -> Cell:
        """Another cell for an open session, with the original tree."""
        old = session.cell
        await self._start()
        cell = await self._spawn(old.key, "host", old.tree)
        if session.is_closed:
            self._drop(cell)
            raise SandboxError("the session was closed while it was being reset")
        return cell

    async def _spawn(self, key: CellKey, kind: CellKind, tree: StoredTree | None = None) -> Cell:
        assert self._host is not None
        if key.network != "none" and self._host.level != "full":
            raise SandboxError(
                f"network={key.network!r} needs a network namespace of its own; level {self._host.level!r} has none"
            )
        zygote = await self._zygote(key)
        try:
            return await self._spawn_from(zygote, key, kind, tree)
        except SandboxError:
            if zygote.alive:
                raise
        # The zygote had died. A process that it started may have written to the first cell's sockets, so this cell is
        # a new one.
        return await self._spawn_from(await self._zygote(key), key, kind, tree)

    async def _spawn_from(self, zygote: Zygote, key: CellKey, kind: CellKind, tree: StoredTree | None) -> Cell:
        assert self._host is not None
        assert self._loop is not None
        cell = self._host.build_cell(key, kind)
        self._cells.add(cell)
        if tree is not None and self._store is not None:
            cell.tree = self._store.hold(tree)
            cell.tree_method = self._host.trees
        method = cell.tree_method
        copied = tree.manifest if tree is not None and method == "copy" else Manifest({})
        try:
            header = {
                "kind": kind,
                "scratch": cell.scratch,
                "network": key.network,
                "tree": method,
                "disk_bytes": key.disk_bytes + copied.num_bytes + PAGE_BYTES * len(copied.files),
                "num_files": key.num_files + len(copied.files) + len(copied.folders),
                "rlimits": build_rlimits(key, has_cgroup=self._host.has_cgroups),
            }
            lowers = tree.lowers if tree is not None and method == "overlay" else ""
            uid = self._host.uid_of(cell)
            cell.pidfd = await zygote.spawn(uid, header, cell.fds_to_pass(), lowers)
            cell.passed()
            cell.attach(self._loop)
            if kind == "slot" or tree is not None:
                answer, fds = await wait_for_answer(cell.expect(), cell.activity)
                check_ready(answer, "a cell could not be set up")
                if tree is not None:
                    (cell.edits,) = fds
                    if method == "copy":
                        lay_copy(cell.edits, tree, None if uid is None else (uid, uid))
        except BaseException as error:
            self._drop(cell)
            if isinstance(error, TimeoutError | ConnectionError):
                raise SandboxError(f"a cell did not start: {describe(error)}") from error
            raise
        return cell

    async def _take(self, key: CellKey) -> Cell:
        idle = self._idle.get(key)
        while idle:
            cell = idle.pop()
            if not cell.dead:
                return cell
            self._drop(cell)
        others = [cell for cells in self._idle.values() for cell in cells]
        if len(others) >= 2 * self._num_slots:
            oldest = others[0]
            self._idle[oldest.key].remove(oldest)
            self._drop(oldest)
        return await self._spawn(key, "slot")

    def _give_back(self, cell: Cell) -> None:
        cell.num_runs += 1
        if cell.dead or self._closed or self._mode == "strict" or cell.num_runs >= MAX_RUNS_PER_CELL:
            self._drop(cell)
        else:
            self._idle.setdefault(cell.key, []).append(cell)

    def _drop(self, cell: Cell) -> None:
        self._cells.discard(cell)
        self._spent_s += cell.processor_seconds()
        cell.close()
        if cell.tree is not None and self._store is not None:
            self._store.release(cell.tree)
            cell.tree = None
        if self._host is not None:
            self._host.free_cell(cell)

    def _forget_session(self, session: LocalSession) -> None:
        if session.is_closed:
            self._sessions.discard(session)
        if session.owns_cell:
            self._drop(session.cell)

    # -------------------------------------------------------------------------------------------- running

    @contextlib.asynccontextmanager
    async def _hold(self, num_places: int, limits: Limits) -> AsyncIterator[None]:
        """Hold `num_places` slots, after waiting for them. Raises SandboxError if the sandbox has fewer."""
        check_limits(limits)
        await self._start()
        if num_places > self._num_slots:
            raise SandboxError(
                f"{num_places} programs have to run at once, but there are only {self._num_slots} slots; raise "
                "num_slots"
            )
        held = 0
        try:
            # A pair takes both slots before any other request takes one, so that two pairs never wait for each other.
            async with self._line:
                while held < num_places:
                    await self._places.acquire()
                    held += 1
            if self._closed:
                raise SandboxError("this sandbox was closed while the program was waiting for a slot")
            yield
        finally:
            for _ in range(held):
                self._places.release()

    async def _run_one(
        self,
        program: Program,
        limits: Limits,
        *,
        peer: socket.socket | None = None,
        running: list[Cell] | None = None,
        fresh: bool = False,
    ) -> Execution:
        """Run one program, with `fresh` in a new cell; the caller holds its slot. `peer` is passed to the program and
        closed; the program's cell is appended to `running`."""
        profile = choose_profile(program) if program.language == "python" else "std"
        async with self._stored(with_files(program)) as tree:
            if tree is not None:
                program = replace(program, files={})
            return await self._run_stored(program, limits, profile, tree, peer, running, fresh)

    async def _run_stored(
        self,
        program: Program,
        limits: Limits,
        profile: str,
        tree: StoredTree | None,
        peer: socket.socket | None,
        running: list[Cell] | None,
        fresh: bool,
    ) -> Execution:
        payload, payload_bytes = build_payload(program)
        fds = [payload]
        try:
            packet = build_run(program, limits, payload_bytes=payload_bytes, has_peer=peer is not None)
            if program.stdin:
                fds.append(wire.to_memfd([program.stdin]))
            key = self._key(profile, program.network, limits, tree)
            execution = await self._attempt(key, program, limits, packet, fds, peer, running, tree=tree, fresh=fresh)
            for _ in range(MAX_REPEATS):
                if execution is not None or peer is not None or self._closed:
                    break
                # A cell killed from outside ends its program, which left nothing behind and can start again. It takes a
                # new cell, because the zygote's death may be about to end the idle ones as well.
                for fd in fds:
                    os.lseek(fd, 0, os.SEEK_SET)
                execution = await self._attempt(key, program, limits, packet, fds, None, running, tree=tree, fresh=True)
        finally:
            wire.close_all(fds)
        if execution is None:
            raise CellKilled(
                "the cell was killed from outside while its program was running; the request can be repeated"
            )
        return execution

    async def _attempt(
        self,
        key: CellKey,
        program: Program,
        limits: Limits,
        packet: bytes,
        fds: Sequence[int],
        peer: socket.socket | None,
        running: list[Cell] | None,
        *,
        tree: StoredTree | None,
        fresh: bool = False,
    ) -> Execution | None:
        """Run in one cell; with `fresh` or a tree in a new one. None if the cell was killed from outside."""
        # Only a cell that outlives its program can read output files, and end all processes before a tree is read.
        once = self._mode == "strict" and self._name == "full" and not program.outputs and tree is None
        if once or fresh or tree is not None:
            cell = await self._spawn(key, "once" if once else "slot", tree)
        else:
            cell = await self._take(key)
        if running is not None:
            running.append(cell)
        try:
            report, opened = await self._exchange(cell, packet, fds, peer, limits)
            cell.drain()
            if report is None:
                execution = self._lost(cell)
            else:
                execution = self._to_execution(
                    cell, report, _read_outputs(program.outputs, report[wire.REPORT.size :], opened)
                )
                cell.programs_cpu_s += execution.cpu_s
                cell.dead = cell.dead or bool(report[4] & wire.LAST)
            if tree is not None and execution is not None:
                execution = self._with_changes(execution, cell, tree, limits)
        except BaseException:
            # The program ends with its cell.
            self._drop(cell)
            raise
        if report is None:
            self._drop(cell)
        else:
            self._give_back(cell)
        return execution

    def _with_changes(self, execution: Execution, cell: Cell, tree: StoredTree, limits: Limits) -> Execution:
        try:
            changes = read_changes(
                cell.edits,
                tree,
                is_overlay=cell.tree_method == "overlay",
                max_bytes=limits.disk_bytes,
                max_files=limits.num_files,
            )
        except ChangesTooLarge:
            return replace(execution, limit=execution.limit or "disk")
        return replace(execution, changes=changes)

    async def _exchange(
        self, cell: Cell, packet: bytes, fds: Sequence[int], peer: socket.socket | None, limits: Limits
    ) -> tuple[bytes | None, list[int]]:
        """Send the program and wait for the report and the descriptors of its output files. The report is None if the
        cell ended instead."""
        cell.stdout.reset(limits.output_bytes)
        cell.stderr.reset(limits.output_bytes)
        cell.on_overflow = lambda: _stop(cell)
        timers: list[asyncio.TimerHandle] = []
        if cell.cgroup is not None:
            cell.cgroup.mark()
        answer = cell.expect()
        try:
            wire.send_packet(cell.connection, packet, [*fds, *([peer.fileno()] if peer else [])])
            if peer is not None:
                peer.close()  # otherwise the other program would not notice that this one ended
            if cell.kind == "once":
                assert self._loop is not None
                started = time.monotonic()
                timers.append(self._loop.call_later(limits.wall_s, cell.let_flush))
                timers.append(self._loop.call_later(limits.wall_s + wire.FLUSH_S, _stop, cell))
            async with asyncio.timeout(limits.wall_s + REPORT_GRACE_S):
                report, opened = await answer
            if timers:
                report = _complete(report, time.monotonic() - started, limits)
            return report, opened
        except (ConnectionError, BrokenPipeError):
            return None, []
        except TimeoutError as error:
            raise SandboxError(
                f"a cell did not report within {REPORT_GRACE_S:g} s after its program's deadline and was killed"
            ) from error
        finally:
            cell.on_overflow = None
            for timer in timers:
                timer.cancel()

    def _lost(self, cell: Cell) -> Execution | None:
        """The execution of a program whose cell the kernel killed for its memory; None if the cell died otherwise."""
        events = cell.cgroup.events() if cell.cgroup is not None else None
        if events is None or not events.num_oom_kills:
            return None
        return Execution(
            stdout=cell.stdout.take(),
            stderr=cell.stderr.take(),
            exit_code=None,
            signal=int(signal.SIGKILL),
            limit="memory",
            level=self._name,
        )

    def _to_execution(self, cell: Cell, report: bytes, files: dict[str, bytes]) -> Execution:
        status, how_ended, wall_s, cpu_s, max_rss_bytes, disk_full = wire.REPORT.unpack_from(report)
        ended = how_ended & ~wire.LAST
        signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        stderr = cell.stderr.take()
        overflow = bool(cell.stdout.dropped or cell.stderr.dropped)
        limit: Limit | None = None
        if ended == wire.WALL:
            limit = "wall"
        elif overflow:
            limit = "output"
        elif signalled == signal.SIGXCPU:
            limit = "cpu"
        elif signalled == signal.SIGXFSZ or disk_full:
            limit = "disk"
        elif status != 0:
            limit = find_limit(cell, stderr)
        killed = ended != wire.BY_ITSELF
        return Execution(
            stdout=cell.stdout.take(),
            stderr=stderr,
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) and not killed else None,
            signal=signalled if not killed else None,
            limit=limit,
            files=files,
            stdout_dropped=cell.stdout.dropped,
            stderr_dropped=cell.stderr.dropped,
            wall_s=wall_s,
            cpu_s=cpu_s,
            max_rss_bytes=max_rss_bytes,
            level=self._name,
        )


def _complete(report: bytes, elapsed_s: float, limits: Limits) -> bytes:
    """Complete the report on a cell that was its own program with its elapsed time and the reason for its end.

    As the first process of its pid namespace it survives SIGXCPU, and the kernel kills it a second of processor time
    later."""
    status, ended, _, cpu_s, *rest = wire.REPORT.unpack(report)
    signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    if signalled in (signal.SIGKILL, signal.SIGXCPU) and elapsed_s >= limits.wall_s:
        ended = wire.WALL
    elif signalled == signal.SIGKILL and limits.cpu_s is not None and cpu_s >= limits.cpu_s:
        status = int(signal.SIGXCPU)
    elif signalled == signal.SIGKILL:
        ended = wire.KILLED
    return wire.REPORT.pack(status, ended, elapsed_s, cpu_s, *rest)


def _stop(cell: Cell) -> None:
    """End the running program."""
    if cell.kind == "once":
        cell.kill()
        return
    try:
        wire.send_packet(cell.connection, wire.KILL)
    except OSError:
        cell.kill()


def _read_outputs(names: Sequence[str], exist: bytes, fds: list[int]) -> dict[str, bytes]:
    """Name to content of the output files; `exist` has one flag per name, `fds` one descriptor per file that exists.

    Raises SandboxError for a file that is too large, rather than cut it silently."""
    contents: dict[str, bytes] = {}
    try:
        opened = (name for name, exists in zip(names, exist, strict=True) if exists)
        for name, fd in zip(opened, fds, strict=True):
            contents[name] = read_plain(fd, name, MAX_OUTPUT_FILE_BYTES)
    finally:
        wire.close_all(fds)
    return contents
