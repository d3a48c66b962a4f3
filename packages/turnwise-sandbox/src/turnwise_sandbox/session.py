"""The supervisor's side of a live session, which has its own cell."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from turnwise_sandbox import wire
from turnwise_sandbox.channel import Channel
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.handles import Cell, check_ready, describe, wait_for_answer
from turnwise_sandbox.limits_hit import find_limit, read_plain
from turnwise_sandbox.requests import check_path, to_bytes
from turnwise_sandbox.tree_changes import read_changes
from turnwise_sandbox.tree_store import StoredTree
from turnwise_sandbox.types import Execution, Limit, Limits

INTERRUPT_GRACE_S = 0.04
"""Seconds after an interrupt in which code must stop; otherwise it is killed, which ends the session."""
MAX_GRACE_S = 1.0
"""The same if other processes keep the code from the processor, because it must run to be able to stop."""
CHANCE_S = 0.03
"""Processor time that is enough for code to stop after an interrupt."""

FORK_DEADLINE_S = 30.0
"""How long copying a session's folder and memory may take."""

SHELL_START = (
    '__turnwise_trace=; __turnwise_seen=0; __turnwise_status() { return "$1"; }; '
    '__turnwise() { if ((__turnwise_seen > $3)); then return 130; fi; '
    '__turnwise_status "$2"; eval "$__turnwise_trace$1"; }; '
    "__turnwise_end() { case $- in *x*) set +x; __turnwise_trace='set -x; ' ;; *) __turnwise_trace= ;; esac; "
    "printf 'done %s\\n' \"$1\" >&3; }; trap 'return $((__turnwise_seen += 1, 130))' INT"
)
"""Defines what surrounds a command in a shell. `$?` is that of the command before; `set -x` shows nothing but commands;
an interrupt returns from the function, so that variables are kept. One that came before its command, as the count of
those sent says, leaves nothing to run."""

_TRACING = re.compile(r"-\w*x|xtrace|\bsource\b|(?:^|[\s;&|'])\.\s")
"""What may turn `set -x` on. A shell that never ran it is spared the redirection that hides the end of a command, which
takes a fifth of the time of a short one."""

ENDS = {
    "bash": "the shell exited (by exit, exec, a failure under set -e or set -u, or a signal)",
    "python": "the interpreter exited (by exit(), a signal, or a crash outside of Python)",
}
"""What ends a live process before a limit does."""

MAX_FILE_BYTES = 64 << 20
"""The largest file that can be read from a session."""


class LocalSession:
    """Implements `Session`. Made by `LocalSandbox.open` and `LocalSession.fork`."""

    def __init__(
        self,
        cell: Cell,
        *,
        language: Literal["python", "bash"],
        limits: Limits,
        seed: int,
        level: str,
        on_close: Callable[[LocalSession], None],
        reopen: Callable[[LocalSession], Awaitable[Cell]],
        root: _Root | None = None,
    ) -> None:
        self._root = root or _Root(cell)
        self._root.num_branches += 1
        self._reopen = reopen
        self._copied_folder = -1
        """Descriptor of a branch's copy of the tree; -1 for a session that is not a branch."""
        self._language = language
        self._limits = limits
        self._seed = seed
        self._level = level
        self._on_close = on_close
        self._folder = "work"
        self._busy = False
        self._num_calls = 0
        self._num_interrupts = 0
        """Interrupts sent to the live process so far, which counts them too."""
        self._status = 0
        """Of the last command of a shell."""
        self._may_trace = False
        self._limit: Limit | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over: str | None = None
        self._channel: Channel | None = None

    @property
    def cell(self) -> Cell:
        """The session's cell; branches share one."""
        return self._root.cell

    # -------------------------------------------------------------------------------------------- starting

    async def start(self) -> None:
        """Start the live process. Raises SandboxError."""
        cell = self.cell
        kind = socket.SOCK_STREAM if self._language == "bash" else socket.SOCK_SEQPACKET
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        self._channel = Channel(ours, cell.take_pipes(), self._on_overflow)
        # A live process serves any number of calls, so its processor time is bounded only if `cpu_s` is given.
        packet = wire.LIVE.pack(self._language == "bash", self._seed % 2**64, self._limits.cpu_s or 0)
        self._channel.attach(asyncio.get_running_loop())
        answer, hello = cell.expect(), self._channel.expect()
        try:
            with theirs:  # closed after sending, so that the stream ends with the live process
                wire.send_packet(cell.connection, packet, [theirs.fileno()])
            reply, _ = await wait_for_answer(answer, cell.activity)
            check_ready(reply, "the session did not start")
            if self._language == "python":
                await wait_for_answer(hello, cell.activity)
            else:
                define = self._shell(SHELL_START)
                if await wait_for_answer(asyncio.ensure_future(define), cell.activity) is None:
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
        self._may_trace = self._may_trace or _TRACING.search(code) is not None
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._stop, "wall")
        try:
            reply = await (
                self._shell(f"__turnwise {shlex.quote(code)} {self._status} {self._num_interrupts}")
                if self._language == "bash"
                else self._ask(code)
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
            raise SandboxError("the session is running another command; wait for it to finish")
        self._busy = True
        self._channel.attach(asyncio.get_running_loop())
        self.cell.attach(asyncio.get_running_loop())
        return self._channel

    async def _ask(self, code: str) -> dict[str, Any] | None:
        """The interpreter's answer; None if it ended instead."""
        assert self._channel is not None
        source = to_bytes(code)
        payload = wire.to_memfd([source])
        self._num_calls += 1
        answer = self._channel.expect(self._num_calls)
        try:
            header = {"op": "run", "size": len(source), "call": self._num_calls, "interrupts": self._num_interrupts}
            wire.send(self._channel.connection, header, [payload])
            return await answer
        except (ConnectionError, BrokenPipeError):
            return None
        finally:
            os.close(payload)

    async def _shell(self, command: str) -> dict[str, Any] | None:
        """Let the shell run `command`. The answer is the status line that it writes to descriptor 3; None if it ended
        instead."""
        assert self._channel is not None
        answer = self._channel.expect()
        end = '{ __turnwise_end "$?"; } 2>/dev/null' if self._may_trace else '__turnwise_end "$?"'
        text = f"{command} </dev/null 3>&-\n{end}\n".encode("utf-8", "surrogateescape").replace(b"\0", b"")
        try:
            await asyncio.get_running_loop().sock_sendall(self._channel.connection, text)
            return await answer
        except OSError:
            return None

    def _stop(self, limit: Limit) -> None:
        """Interrupt a call that hit a limit; kill it if it does not stop within the grace period."""
        assert self._channel is not None
        answered = limit == "wall" and not self._channel.waiting
        if self._limit is not None or self._timer is None or answered:
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
        """End a session whose call ignores its interrupt. `before` is the processor time of each process at the
        interrupt, by pid."""
        assert self._channel is not None
        wants_to_run, now = self.cell.activity()
        if self._channel.waiting:
            self._channel.look()
        if not self._channel.waiting:
            return
        if wants_to_run and used_since(before, now) < CHANCE_S and time.monotonic() - interrupted_at < MAX_GRACE_S:
            self._timer = asyncio.get_running_loop().call_later(
                INTERRUPT_GRACE_S / 4, self._give_up, interrupted_at, before
            )
            return
        self._end(f"code hit the {self._limit} limit and ignored the interrupt")
        self._channel.fail()

    def _interrupt(self) -> None:
        assert self._channel is not None
        self._num_interrupts += 1
        if self._language == "bash":
            # The commands that the shell waits for need the interrupt too, and only the cell can signal them all.
            try:
                wire.send(self.cell.connection, {"op": "interrupt"})
            except OSError:
                self._end("its cell is gone")
            return
        self._channel.signal(signal.SIGINT)

    def _on_overflow(self) -> None:
        # Later in this iteration of the event loop: the answer may be about to be read, and the next call begin.
        asyncio.get_running_loop().call_soon(self._stop_overflow, self._timer)

    def _stop_overflow(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is self._timer:
            self._stop("output")

    def _end(self, why: str) -> None:
        """Mark the session as over and kill its process, or its cell if the session is the only branch."""
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
            error = f"the session ended at the {limit} limit" if limit else f"the session ended: {ENDS[self._language]}"
        else:
            value = reply.get("value") if isinstance(reply.get("value"), str) else None
            error = reply.get("error") if isinstance(reply.get("error"), str) else None
            status = reply.get("status")
            exit_code = self._status = status if isinstance(status, int) else int(error is not None)
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
        """Copy the live interpreter and its folder. See `Session.fork`.

        Branches are as isolated from the host as any session, but share one cell: they see the same processes and have
        one quota. Relative paths name the branch's folder, absolute ones still the original's."""
        if self._language != "python":
            raise SandboxError("a shell session cannot be forked; fork a Python session, or replay the commands")
        channel = self._enter()
        branch = LocalSession(
            self.cell,
            language="python",
            limits=self._limits,
            seed=self._seed,
            level=self._level,
            on_close=self._on_close,
            reopen=self._reopen,
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
                branch._channel.disown()  # the original answered, and must not be killed with the branch
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
        if self.cell.tree is not None:
            try:
                branch._copied_folder = await branch._open("folder", branch._folder)
            except BaseException:
                await branch.close()
                raise
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
            raise SandboxError(f"could not write {path}: {error.strerror}; part of it was written") from error
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
        return await self._open(op, check_path(path))

    async def _open(self, op: str, path: str) -> int:
        header = {"op": op, "folder": self._folder, "path": path}
        self._enter()
        try:
            answer = self.cell.expect()
            wire.send(self.cell.connection, header)
            reply, fds = await wait_for_answer(answer, self.cell.activity)
            check_ready(reply, f"{path} could not be opened")
        except (TimeoutError, ConnectionError, OSError) as error:
            self._end("its cell is gone")
            raise SandboxError(f"could not open {path}: the session is over") from error
        finally:
            self._busy = False
        return fds[0]

    # -------------------------------------------------------------------------------------------- the tree

    async def changes(self) -> dict[str, bytes | None]:
        """What the session wrote into its tree. See `Session.changes`."""
        tree = self._check_tree()
        is_branch = self._copied_folder != -1
        return read_changes(
            self._copied_folder if is_branch else self.cell.edits,
            tree,
            is_overlay=self.cell.tree_method == "overlay" and not is_branch,
            max_bytes=self._limits.disk_bytes,
            max_files=self._limits.num_files,
        )

    async def reset(self) -> None:
        """Start again in another cell. See `Session.reset`."""
        self._check_tree()
        self._busy = True
        try:
            cell = await self._reopen(self)
            self._leave()
            self._on_close(self)
            self._root, self._folder, self._over, self._limit = _Root(cell), "work", None, None
            self._root.num_branches = 1
            try:
                await self.start()
            except BaseException:
                self._end("it could not be reset")
                raise
        finally:
            self._busy = False

    def _check_tree(self) -> StoredTree:
        """The session's tree. Raises SandboxError without one, after `close`, and while code runs."""
        if self.is_closed:
            raise SandboxError("the session is over: it was closed")
        if self.cell.tree is None:
            raise SandboxError("the session has no tree; pass one to open()")
        if self._busy:
            raise SandboxError("the session is running another command; wait for it to finish")
        return self.cell.tree

    def memory_bytes(self) -> int | None:
        """Memory charged to the session, including kernel memory; None without a cgroup."""
        return None if self.cell.cgroup is None else self.cell.cgroup.memory_bytes()

    async def close(self) -> None:
        """End the session. See `Session.close`."""
        if not self.is_closed:
            self._leave()
            self._over = "closed"
            self._on_close(self)

    def _leave(self) -> None:
        """End the session's process and release its cell."""
        if self._channel is not None and not self._channel.closed:
            self._channel.signal(signal.SIGKILL)
            self._channel.close()
        if self._copied_folder != -1:
            os.close(self._copied_folder)
            self._copied_folder = -1
        self._root.num_branches -= 1

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._over == "closed"

    @property
    def owns_cell(self) -> bool:
        """Whether no other branch uses the cell."""
        return self._root.num_branches == 0


def used_since(before: Mapping[int, float], now: Mapping[int, float]) -> float:
    """Processor time that the processes in `now` have used since `before`, both by pid."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in now.items())


class _Root:
    """The state that the branches of one session share."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.num_branches = 0
