"""The supervisor's handles on zygotes and cells: their processes, sockets and pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from turnwise_sandbox import wire
from turnwise_sandbox.capture import Capture
from turnwise_sandbox.cell import CellKind
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel.cgroups import Cgroup
from turnwise_sandbox.tree_store import StoredTree
from turnwise_sandbox.types import TreeMethod

Answer = TypeVar("Answer")
Work = tuple[bool, dict[int, float]]
"""Whether any of some processes is running or waiting for a processor, and the processor seconds of each by pid."""

START_DEADLINE_S = 60.0
"""How long a zygote may take to import its libraries, on a loaded machine."""
SPAWN_DEADLINE_S = 20.0
"""How long a process that should fork a cell or report that it is ready may be idle. A process that runs, or would run
if a processor were free, has more time."""
LINE_DEADLINE_S = 120.0
"""How long a request for a cell may wait for earlier ones, which take some milliseconds each; and for a process that is
busy."""
END_DEADLINE_S = 10.0
"""How long a killed process may take to end."""
MAX_UNANSWERED = 32
"""Requests sent to a zygote and not answered; its socket holds a few hundred."""

SOURCE = str(Path(__file__).parents[1])
START = "import sys; sys.path.insert(0, sys.argv[2]); from turnwise_sandbox.zygote import main; main()"
"""The zygote runs in Python's isolated mode, which ignores PYTHONPATH, and the package need not be installed: the
second argument is the folder to import it from."""

ENVIRONMENT = {
    "PATH": f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HOME": "/",
    "USER": "sandbox",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}
"""The whole environment of sandboxed code."""


class Zygote:
    """One running zygote process. It answers requests in their order, to one event loop at a time."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.profile: str = config["profile"]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ready = False
        # A file, because nothing reads the log while the zygote lives and a full pipe would block it.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        # Looks up the addresses of library functions here, once, instead of at their first call in every fork.
        environment = {**ENVIRONMENT, "LD_BIND_NOW": "1"}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", START, json.dumps({**config, "control": theirs.fileno()}), SOURCE],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env=environment,
                start_new_session=True,
            )
        ours.setblocking(False)
        self.control = ours
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[int] | None] = deque()
        """Futures of the next answers, in their order; None for a request of an earlier event loop."""

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `loop` watch the socket. Answers to requests of an earlier loop are discarded."""
        if self._loop is loop or self.control.fileno() == -1:
            return
        self._loop = loop
        self._waiting = deque([None] * len(self._waiting))
        self._started = asyncio.Event()
        self._room = asyncio.Semaphore(MAX_UNANSWERED)
        loop.add_reader(self.control.fileno(), self._on_answer)

    async def wait_ready(self) -> None:
        """Wait until the zygote can fork. Raises SandboxError, quoting the zygote's log, if it does not start."""
        if self._ready:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_DEADLINE_S):
                await self._started.wait()
        if not self._ready:
            self.close()
            raise SandboxError(f"the sandbox's {self.profile} interpreter did not start: {self._last_line()}")

    async def spawn(self, uid: int | None, header: dict[str, Any], fds: Sequence[int], lowers: str = "") -> int:
        """Fork a cell that takes `fds`, and return its pidfd. `uid` None means the zygote's. `lowers` are the layers
        that overlayfs merges for it; empty for none. Raises SandboxError."""
        assert self._loop is not None
        try:
            async with asyncio.timeout(LINE_DEADLINE_S):
                # Released when the answer comes, even if the request was cancelled.
                await self._room.acquire()
        except TimeoutError as error:
            raise self._lose(error) from error
        try:
            packet = wire.UID.pack(wire.SAME_UID if uid is None else uid) + json.dumps(header).encode()
            wire.send_packet(self.control, packet + (wire.LOWERS + lowers.encode() if lowers else b""), fds)
        except OSError as error:
            self._room.release()
            raise self._lose(error) from error
        answer: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append(answer)
        try:
            return await wait_for_answer(answer, lambda: measure_work(_list_children(self.process.pid)))
        except BaseException as error:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                os.close(answer.result())  # the answer came together with the deadline or the cancellation
            if isinstance(error, TimeoutError):
                raise self._lose(error) from error
            raise

    def _on_answer(self) -> None:
        try:
            answer, fds = wire.receive(self.control)
        except BlockingIOError:
            return
        except OSError:
            answer, fds = None, []
        if answer is None:
            self.close()
            return
        if not self._ready:
            self._ready = True
            self._started.set()
            return
        waiting = self._waiting.popleft()
        if waiting is not None:
            self._room.release()
        if waiting is None or waiting.done():
            wire.close_all(fds)  # the request was given up; the cell ends when its socket closes
        elif fds:
            waiting.set_result(fds[0])
        else:
            waiting.set_exception(SandboxError(f"could not start a cell: {answer.get('error')}"))

    def _lose(self, error: Exception) -> SandboxError:
        self.close()
        return SandboxError(
            f"the sandbox's {self.profile} interpreter is gone ({describe(error)}); the next request starts a new one"
        )

    def processor_seconds(self) -> float:
        """Processor time of the zygote process, including its start."""
        return sum(map(read_processor_seconds, _list_children(self.process.pid)))

    @property
    def is_ready(self) -> bool:
        """Whether the zygote has started."""
        return self._ready

    @property
    def alive(self) -> bool:
        """Whether the zygote can fork cells."""
        return self.control.fileno() != -1 and self.process.poll() is None

    def close(self) -> None:
        """End the zygote and, through the kernel, all of its cells. Requests that wait raise SandboxError."""
        if self._loop is not None and not self._loop.is_closed() and self.control.fileno() != -1:
            self._loop.remove_reader(self.control.fileno())
            self._started.set()
            for waiting in filter(None, self._waiting):
                self._room.release()
                if not waiting.done():
                    waiting.set_exception(SandboxError("could not start a cell: the interpreter is gone"))
        self._waiting.clear()
        self.control.close()
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a later `poll` reaps it
            self.process.wait(END_DEADLINE_S)

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self.process.returncode}"


class Cell:
    """One running cell: its socket, output pipes and pidfd, watched by one event loop at a time."""

    def __init__(self, key: Any, cgroup: Cgroup | None, scratch: str | None, index: int, kind: CellKind) -> None:
        self.key = key
        self.cgroup = cgroup
        self.scratch = scratch
        self.index = index
        self.kind = kind
        self.tree: StoredTree | None = None
        self.tree_method: TreeMethod | None = None
        self.edits = -1
        """Descriptor of the folder with the changes of the tree."""
        self.num_runs = 0
        self.programs_cpu_s = 0.0
        self.pidfd = -1
        self.dead = False
        self.stdout, self.stderr = Capture(), Capture()
        self.on_overflow: Callable[[], None] | None = None
        self._report: asyncio.Future[tuple[bytes, list[int]]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.connection, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.setblocking(False)
        self._pipes: list[int] = []
        self._ends: list[int] = []
        for _ in range(2):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(reader, False)
            self._pipes.append(reader)
            self._ends.append(writer)

    def fds_to_pass(self) -> list[int]:
        """The descriptors for the new process."""
        return [self._theirs.fileno(), *self._ends, *(self.cgroup.attach_fds() if self.cgroup else [])]

    def passed(self) -> None:
        """Close this process's copies of the descriptors that the new process has, so that the streams end with it. The
        outputs of a cell that runs once stay open: its report says that it ended, and the ends of the two streams would
        only wake the event loop again."""
        self._theirs.close()
        if self.kind != "once":
            wire.close_all(self._ends)
            self._ends = []

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `loop` watch the descriptors."""
        if self._loop is loop:
            return
        self._loop = loop
        loop.add_reader(self.connection.fileno(), self._on_packet)
        for pipe, capture in zip(self._pipes, (self.stdout, self.stderr), strict=False):
            loop.add_reader(pipe, self._on_output, pipe, capture)

    def take_pipes(self) -> list[int]:
        """Hand over the read ends of stdout and stderr; a live process is read through a `Channel`."""
        pipes, self._pipes = self._pipes, []
        return pipes

    def expect(self) -> asyncio.Future[tuple[bytes, list[int]]]:
        """The cell's next packet and its descriptors. Fails with ConnectionError if the cell ends first."""
        assert self._loop is not None
        self._report = self._loop.create_future()
        if self.dead:
            self._fail()
        return self._report

    def _fail(self) -> None:
        if self._report is not None and not self._report.done():
            self._report.set_exception(ConnectionError("the cell ended"))
            self._report.exception()  # mark as retrieved: after a failed send nothing awaits the future

    def _on_packet(self) -> None:
        try:
            packet, fds = wire.receive_packet(self.connection)
        except BlockingIOError:
            return
        except OSError:
            packet, fds = b"", []
        if not packet:
            self._mark_dead()
        elif self._report is not None and not self._report.done():
            self._report.set_result((packet, fds))
        else:
            wire.close_all(fds)

    def _mark_dead(self) -> None:
        self.dead = True
        if self._loop is not None and self.connection.fileno() != -1:
            self._loop.remove_reader(self.connection.fileno())
        self._fail()

    def _on_output(self, pipe: int, capture: Capture) -> None:
        if not capture.read(pipe) and self._loop is not None:
            self._loop.remove_reader(pipe)
        if capture.dropped and self.on_overflow is not None:
            overflow, self.on_overflow = self.on_overflow, None
            overflow()

    def drain(self) -> None:
        """Read what the pipes hold, without waiting for more."""
        for pipe, capture in zip(self._pipes, (self.stdout, self.stderr), strict=False):
            capture.drain(pipe)

    def processor_seconds(self) -> float:
        """Processor time of the cell and of the programs that ended in it."""
        if self.kind == "once" and self.programs_cpu_s:
            return self.programs_cpu_s  # the cell was the program and has ended
        pid = self._pid()
        return self.programs_cpu_s + (0.0 if pid is None else read_processor_seconds(pid))

    def activity(self) -> Work:
        """The work of the cell's processes."""
        pid = self._pid()
        pids = [] if pid is None else [pid]
        for parent in pids:
            pids += _list_children(parent)
        return measure_work(pids)

    def _pid(self) -> int | None:
        try:
            with open(f"/proc/self/fdinfo/{self.pidfd}", "rb") as file:
                return int(next(line.split()[1] for line in file if line.startswith(b"Pid:")))
        except (OSError, StopIteration):
            return None

    def kill(self) -> None:
        """End the cell and everything in it, now."""
        if self.scratch is not None:
            # Without a pid namespace the cell must kill its programs itself, which it does when its socket closes.
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._kill_process()

    def let_flush(self) -> None:
        """Let a program that is its own cell write what its streams hold, before it is killed."""
        self._signal(signal.SIGXCPU)

    def _kill_process(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.pidfd != -1:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the end of its socket ends it as well
                signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Kill the cell and close its descriptors. A second call does nothing."""
        if self.connection.fileno() == -1:
            return
        self.kill()
        if self._loop is not None and not self._loop.is_closed():
            for fd in (self.connection.fileno(), *self._pipes):
                self._loop.remove_reader(fd)
        self._mark_dead()
        self.connection.close()
        self._theirs.close()
        wire.close_all([*self._pipes, *self._ends])
        self._pipes, self._ends = [], []  # the numbers will be used again
        if self.pidfd != -1:
            if not _is_gone(self.pidfd):
                self._kill_process()
            os.close(self.pidfd)
            self.pidfd = -1
        if self.edits != -1:
            os.close(self.edits)
            self.edits = -1


async def wait_for_answer(answer: asyncio.Future[Answer], measure: Callable[[], Work]) -> Answer:
    """Wait for the answer of processes whose work `measure` reports. Raises TimeoutError naming the reason if there is
    none: after `SPAWN_DEADLINE_S` of idleness, or after `LINE_DEADLINE_S` even if they are busy."""
    deadline = time.monotonic() + LINE_DEADLINE_S
    try:
        before = measure()
        while not (await asyncio.wait([answer], timeout=SPAWN_DEADLINE_S))[0]:
            now = measure()
            if not now[0] and now == before:
                raise TimeoutError(f"no answer within {SPAWN_DEADLINE_S:g} s, while it was not running")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {LINE_DEADLINE_S:g} s, although it is running")
            before = now
        return answer.result()
    except BaseException:
        answer.cancel()
        raise


def measure_work(pids: Sequence[int]) -> Work:
    """The work of some processes."""
    return any(map(_is_runnable, pids)), {pid: read_processor_seconds(pid) for pid in pids}


def describe(error: BaseException) -> str:
    """The error's message; "no answer in time" for a timeout without one."""
    return str(error) or "no answer in time"


def check_ready(packet: bytes, what: str) -> dict[str, Any]:
    """A cell's JSON answer. Raises SandboxError, beginning with `what`, if the answer is an error."""
    answer: dict[str, Any] = json.loads(packet)
    if "error" in answer:
        raise SandboxError(f"{what}: {answer['error']}")
    return answer


def _is_gone(pidfd: int) -> bool:
    """Wait for the end of a cell, after which another can use its cgroup. False if it takes more than a second."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000))


def _list_children(pid: int) -> list[int]:
    """Pids of a process's children; empty if it has ended or the kernel does not list them."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return list(map(int, file.read().split()))
    except OSError:
        return []


def _is_runnable(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == b"R"
    except OSError:
        return False


def read_processor_seconds(pid: int) -> float:
    """Processor time of one process; 0 if it has ended. Read as bytes, because Python 3.11 leaks some 60 bytes for each
    file opened as text."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[0]) / 1e9
    except OSError:
        return 0.0
