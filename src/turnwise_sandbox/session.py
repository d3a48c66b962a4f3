"""A live session in a cell of its own, seen from the supervisor."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from turnwise_sandbox import wire
from turnwise_sandbox.channel import Channel
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.handles import SPAWN_DEADLINE_S, Cell, check_ready, describe
from turnwise_sandbox.limits_hit import find_limit, read_plain
from turnwise_sandbox.requests import check_path, to_bytes
from turnwise_sandbox.types import Execution, Limit, Limits

INTERRUPT_GRACE_S = 0.04
"""Code that has not stopped so long after its interrupt is killed, and the session with it."""
MAX_GRACE_S = 1.0
"""The same where other processes keep it from the processor: it cannot stop before it runs."""
CHANCE_S = 0.03
"""Processor time in which code could have stopped."""

FORK_DEADLINE_S = 30.0
"""For the copy of a session's folder and memory."""

MAX_FILE_BYTES = 64 << 20


class LocalSession:
    """See `Session`. Made by `LocalSandbox.open` and `fork`."""

    def __init__(
        self,
        cell: Cell,
        *,
        language: Literal["python", "bash"],
        limits: Limits,
        seed: int,
        level: str,
        on_close: Callable[[LocalSession], None],
        root: _Root | None = None,
    ) -> None:
        self._root = root or _Root(cell)
        self._root.num_branches += 1
        self._language = language
        self._limits = limits
        self._seed = seed
        self._level = level
        self._on_close = on_close
        self._folder = "work"
        self._busy = False
        self._num_calls = 0
        self._limit: Limit | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over: str | None = None
        self._channel: Channel | None = None

    @property
    def cell(self) -> Cell:
        """The cell it lives in; branches share one."""
        return self._root.cell

    # -------------------------------------------------------------------------------------------- starting

    async def start(self) -> None:
        """Start the live process. Raises SandboxError."""
        cell = self.cell
        kind = socket.SOCK_STREAM if self._language == "bash" else socket.SOCK_SEQPACKET
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        self._channel = Channel(ours, cell.take_pipes(), self._on_overflow)
        # A live process may go on for any number of calls: its processor time is bounded only where asked.
        packet = wire.LIVE.pack(self._language == "bash", self._seed % 2**64, self._limits.cpu_s or 0)
        self._channel.attach(asyncio.get_running_loop())
        answer, hello = cell.expect(), self._channel.expect()
        try:
            with theirs:  # held no longer: the end of the live process shall be seen
                wire.send_packet(cell.connection, packet, [theirs.fileno()])
            async with asyncio.timeout(SPAWN_DEADLINE_S):
                reply, _ = await answer
            check_ready(reply, "the session did not start")
            if self._language == "python":
                async with asyncio.timeout(SPAWN_DEADLINE_S):
                    await hello
            else:
                # An interrupt unwinds to the end of the function, so that the shell's variables stay.
                async with asyncio.timeout(SPAWN_DEADLINE_S):
                    if await self._shell("__turnwise() { eval \"$1\"; }; trap 'return 130' INT") is None:
                        raise ConnectionError("the shell ended")
        except (TimeoutError, ConnectionError, BrokenPipeError) as error:
            raise SandboxError(f"the session did not start: {describe(error)}") from error

    # -------------------------------------------------------------------------------------------- running

    async def run(self, code: str, *, timeout_s: float | None = None) -> Execution:
        """Run a piece of code. See `Session.run`."""
        channel = self._enter()
        timeout_s = self._limits.wall_s if timeout_s is None else timeout_s
        channel.reset(self._limits.output_bytes)
        if self.cell.cgroup is not None:
            self.cell.cgroup.mark()
        started = time.monotonic()
        self._limit = None
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._stop, "wall")
        try:
            reply = await (
                self._shell("__turnwise " + shlex.quote(code)) if self._language == "bash" else self._ask(code)
            )
        except asyncio.CancelledError:
            self._end("its last call was cancelled")
            raise
        finally:
            self._timer.cancel()
            self._timer = None
            self._busy = False
        return self._to_execution(channel, reply, self._limit, time.monotonic() - started)

    def _enter(self) -> Channel:
        if self._over is not None:
            raise SandboxError(f"the session is over: {self._over}")
        if self._channel is None:
            raise SandboxError("the session was never started")
        if self._busy:
            raise SandboxError("the session is running something else; wait for it")
        self._busy = True
        self._channel.attach(asyncio.get_running_loop())
        self.cell.attach(asyncio.get_running_loop())
        return self._channel

    async def _ask(self, code: str) -> dict[str, Any] | None:
        """The interpreter's answer; None when it ended instead."""
        assert self._channel is not None
        source = to_bytes(code)
        payload = wire.to_memfd([source])
        self._num_calls += 1
        answer = self._channel.expect(self._num_calls)
        try:
            wire.send(self._channel.connection, {"op": "run", "size": len(source), "call": self._num_calls}, [payload])
            return await answer
        except (ConnectionError, BrokenPipeError):
            return None
        finally:
            os.close(payload)

    async def _shell(self, command: str) -> dict[str, Any] | None:
        """Let the shell run `command`; its answer is the status line it writes to descriptor 3. None when it ended
        instead."""
        assert self._channel is not None
        answer = self._channel.expect()
        text = f"{command} </dev/null 3>&-\nprintf 'done %s\\n' \"$?\" >&3\n".encode(
            "utf-8", "surrogateescape"
        ).replace(b"\0", b"")
        try:
            await asyncio.get_running_loop().sock_sendall(self._channel.connection, text)
            return await answer
        except OSError:
            return None

    def _stop(self, limit: Limit) -> None:
        """The running call is past a limit: interrupt it, and past the grace kill it."""
        assert self._channel is not None
        late = limit == "wall" and not self._channel.waiting  # the answer came just in time
        if self._limit is not None or self._timer is None or late:
            return
        self._limit = limit
        self._timer.cancel()
        if self._channel.waiting:
            _, before = self.cell.activity()
            self._interrupt()
            self._timer = asyncio.get_running_loop().call_later(
                INTERRUPT_GRACE_S, self._give_up, time.monotonic(), before
            )

    def _give_up(self, interrupted_at: float, before: dict[int, float]) -> None:
        """`before`: processor time of each process at the interrupt."""
        assert self._channel is not None
        wants_to_run, now = self.cell.activity()
        if self._channel.waiting:
            self._channel.look()
        if not self._channel.waiting:
            return  # the answer came in time after all
        if wants_to_run and used_since(before, now) < CHANCE_S and time.monotonic() - interrupted_at < MAX_GRACE_S:
            self._timer = asyncio.get_running_loop().call_later(
                INTERRUPT_GRACE_S / 4, self._give_up, interrupted_at, before
            )
            return
        self._end(f"code hit the {self._limit} limit and ignored the interrupt")
        self._channel.fail()

    def _interrupt(self) -> None:
        assert self._channel is not None
        if self._language == "bash":
            # The commands the shell waits for get it too; only the cell can reach them all.
            try:
                wire.send(self.cell.connection, {"op": "interrupt"})
            except OSError:
                self._end("its cell is gone")
            return
        self._channel.signal(signal.SIGINT)

    def _on_overflow(self) -> None:
        # Not at once: the answer may be among what is about to be read, and what comes next be another call.
        asyncio.get_running_loop().call_soon(self._stop_overflow, self._timer)

    def _stop_overflow(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is self._timer:
            self._stop("output")

    def _end(self, why: str) -> None:
        """It cannot go on. The only branch takes its cell along."""
        self._over = self._over or why
        if self._root.num_branches == 1:
            self.cell.kill()
        elif self._channel is not None:
            self._channel.signal(signal.SIGKILL)

    def _to_execution(
        self, channel: Channel, reply: dict[str, Any] | None, limit: Limit | None, wall_s: float
    ) -> Execution:
        channel.drain()
        error = value = None
        exit_code: int | None = None
        if reply is None:
            self._end("its process ended")
            error = "the session ended" + (f" at the {limit} limit" if limit else "")
        else:
            value = reply.get("value") if isinstance(reply.get("value"), str) else None
            error = reply.get("error") if isinstance(reply.get("error"), str) else None
            status = reply.get("status")
            exit_code = status if isinstance(status, int) else int(error is not None)
        stderr = channel.stderr.take()
        if limit is None and exit_code != 0:
            limit = find_limit(self.cell, stderr)
        return Execution(
            stdout=channel.stdout.take(),
            stderr=stderr,
            exit_code=exit_code,
            signal=None,
            limit=limit,
            value=value,
            error=error,
            stdout_dropped=channel.stdout.dropped,
            stderr_dropped=channel.stderr.dropped,
            wall_s=wall_s,
            level=self._level,
        )

    # -------------------------------------------------------------------------------------------- branches

    async def fork(self) -> LocalSession:
        """A copy of the live interpreter and its folder. See `Session.fork`.

        Branches are as isolated from the host as any session, but share one cell: they see the same processes, and the
        same quota. Relative paths follow the branch; absolute ones still name the original's folder."""
        if self._language != "python":
            raise SandboxError("a shell cannot be forked; fork a Python session, or replay the commands")
        channel = self._enter()
        branch = LocalSession(
            self.cell,
            language="python",
            limits=self._limits,
            seed=self._seed,
            level=self._level,
            on_close=self._on_close,
            root=self._root,
        )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        branch._channel = Channel(ours, [reader for reader, _ in pipes], branch._on_overflow)
        branch._channel.attach(asyncio.get_running_loop())
        try:
            answer = branch._channel.expect()
            with theirs:
                wire.send(channel.connection, {"op": "fork"}, [theirs.fileno(), *(writer for _, writer in pipes)])
            wire.close_all([writer for _, writer in pipes])
            async with asyncio.timeout(FORK_DEADLINE_S):
                reply = await answer
            if "folder" not in reply:
                branch._channel.disown()  # it is the original that says so
                raise SandboxError(f"the session could not be forked: {reply.get('error')}")
        except (TimeoutError, ConnectionError, BrokenPipeError) as error:
            await branch.close()
            raise SandboxError(f"the session could not be forked: {describe(error)}") from error
        except BaseException:
            await branch.close()
            raise
        finally:
            self._busy = False
        branch._folder = PurePosixPath(str(reply["folder"])).name
        return branch

    # -------------------------------------------------------------------------------------------- files

    async def write_file(self, path: str, content: bytes) -> None:
        """Write below the session's folder. See `Session.write_file`."""
        fd = await self._open_file("write", path)
        try:
            view = memoryview(content)
            while len(view):
                view = view[os.write(fd, view) :]
        except OSError as error:
            raise SandboxError(f"{path} could not be written: {error.strerror}") from error
        finally:
            os.close(fd)

    async def read_file(self, path: str, *, max_bytes: int = 16 << 20) -> bytes:
        """Read below the session's folder. See `Session.read_file`."""
        fd = await self._open_file("read", path)
        try:
            return read_plain(fd, path, min(max_bytes, MAX_FILE_BYTES))
        finally:
            os.close(fd)

    async def _open_file(self, op: str, path: str) -> int:
        header = {"op": op, "folder": self._folder, "path": check_path(path)}
        self._enter()
        try:
            answer = self.cell.expect()
            wire.send(self.cell.connection, header)
            async with asyncio.timeout(SPAWN_DEADLINE_S):
                reply, fds = await answer
            check_ready(reply, f"{path} could not be opened")
        except (TimeoutError, ConnectionError, OSError) as error:
            self._end("its cell is gone")
            raise SandboxError(f"{path} could not be opened: the session is over") from error
        finally:
            self._busy = False
        return fds[0]

    def memory_bytes(self) -> int | None:
        """Memory charged to the session now, kernel memory included; None without a cgroup."""
        return None if self.cell.cgroup is None else self.cell.cgroup.memory_bytes()

    async def close(self) -> None:
        """End it. See `Session.close`."""
        if self._channel is not None and not self._channel.closed:
            self._channel.signal(signal.SIGKILL)
            self._channel.close()
        if self._over != "closed":
            self._over = "closed"
            self._root.num_branches -= 1
            self._on_close(self)

    @property
    def owns_cell(self) -> bool:
        """Whether the cell has no other branch left."""
        return self._root.num_branches == 0


def used_since(before: Mapping[int, float], now: Mapping[int, float]) -> float:
    """Processor time that the processes of `now` used since `before`; what ended in between takes nothing away."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in now.items())


class _Root:
    """What the branches of one session share."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.num_branches = 0
