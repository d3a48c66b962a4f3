"""A cell: the first process of its own namespaces, which forks one program after the other and leaves nothing of them
behind.

A *slot* cell runs programs one at a time: fork, wait with a deadline, kill everything that is left, reap it, wipe the
scratch folder, report. A cell that runs *once* becomes its only program itself, and its zygote reports. A *host* cell
starts one live process (a Python interpreter or a shell), reaps orphans and opens files for the supervisor. Both end
when the supervisor's end of their socket closes, and are ended by the kernel when their zygote dies.

What a cell does before a program runs is paid for in pages: each one it touches is copied. Hence `_socket` and
`_signal`, whose wrappers touch dozens.

The cell itself never reads a program's code, and runs with the same rights as the program: none. What it reports (wait
status, times, limits) is to be trusted because the program cannot signal, trace or open it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import contextlib
import gc
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from turnwise_sandbox import wire
from turnwise_sandbox.guest.live import LiveInterpreter
from turnwise_sandbox.guest.program import FILENAME, execute_as_main, run_python, seed_everything, write_files
from turnwise_sandbox.kernel import files, landlock, syscalls

CellKind = Literal["slot", "once", "host"]

PAIR_FD = 4
"""Where a program finds its end of the socket to the program it is paired with."""

MAX_FD = 1 << 20

NUM_REHEARSALS = 32
"""Python 3.11 begins to specialize a function at its eighth call."""

STARTUP_FAILED = 125
"""Exit status of a program whose process could not be prepared (a full scratch folder, an unreadable payload)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """What a cell needs to know about its place; made by the zygote."""

    scratch: str
    """Folder of its own, holding `work` and `tmp`."""
    own_pids: bool
    """It is the first process of a pid namespace, so that signalling -1 reaches exactly its descendants."""
    scope_program: int | None
    """Landlock ruleset each program adds so that it cannot signal the cell; None where namespaces do that."""
    bash: str
    children: int | None
    """Descriptor of the list of this process's children, opened before Landlock closed /proc; None where signalling -1
    will do."""


def run_cell(connection: _socket.socket, stdout: int, stderr: int, plan: CellPlan, kind: CellKind) -> NoReturn:
    """Serve requests until the socket closes. The working folder is the cell's own, standard input the null device.
    Never returns."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    place = _Place(connection, plan)
    try:
        if kind == "once":
            place.run_once()
        elif kind == "slot":
            place.serve_slot()
        else:
            place.host()
    finally:
        os._exit(0)


def rehearse() -> None:
    """Do what every cell and program does first, as often as Python takes to specialize code (PEP 659) and to fill its
    caches.

    What a fork would otherwise do for itself alone, each time, is then done once in the process that it is forked from.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    calls = syscalls.record(lambda: syscalls.set_dumpable(True))
    plan = CellPlan(scratch="", own_pids=True, scope_program=None, bash="", children=None)
    with ours, theirs:
        for _ in range(NUM_REHEARSALS):
            connection = _socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, os.dup(theirs.fileno()))
            wire.send_packet(ours, wire.RUN.pack(b"R", 1.0, 1, 0, 0), [0, 1])
            packet, fds = wire.receive_packet(connection)
            wire.RUN.unpack_from(packet)
            wire.close_all(fds)
            wire.send(ours, {})
            wire.receive(connection)
            _Place(connection, plan)
            connection.close()
            syscalls.perform(calls)
            syscalls.set_dumpable(True)
            os.closerange(MAX_FD, MAX_FD)
            wire.PAYLOAD.unpack_from(wire.pack_payload(b"", {}, language="python", seed=0)[0])
            seed_everything(0)
            execute_as_main(b"", FILENAME)
            LiveInterpreter(connection).run(b"x = 1\nx")
            threading.active_count()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a live interpreter's own is for its process


class _Place:
    def __init__(self, connection: _socket.socket, plan: CellPlan) -> None:
        self.connection = connection
        self.plan = plan

    def _open_scratch(self) -> None:
        self.scratch_fd = os.open(self.plan.scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _open_folders(self) -> None:
        self._open_scratch()
        self.folders = {name: files.open_folder(self.scratch_fd, name) for name in ("work", "tmp")}
        self.looks = [(name, os.fstat(fd)) for name, fd in self.folders.items()]
        # Only a file system of its own counts nobody else's files.
        self.num_free_files = os.fstatvfs(self.scratch_fd).f_ffree if self.plan.own_pids else None

    # -------------------------------------------------------------------------------------------- one-shot programs

    def run_once(self) -> None:
        packet, fds = wire.receive_packet(self.connection)
        if packet:
            _, _, cpu_s, flags, payload_bytes = wire.RUN.unpack_from(packet)
            self._become_program(fds, flags, cpu_s, payload_bytes)

    def serve_slot(self) -> None:
        self._open_folders()
        wire.send_packet(self.connection, wire.READY)
        connection, wipe = self.connection, self._wipe
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        gc.disable()  # a collection would touch, and so copy, the pages of every object
        while True:
            packet, fds = wire.receive_packet(connection)
            if not packet:
                return
            if packet == wire.KILL:
                continue  # it arrived after its program ended
            report, opened = self._run(packet, fds, poll)
            clean = wipe()
            wire.send_packet(connection, report if clean else wire.mark_last(report), opened)
            wire.close_all(opened)
            if not clean:
                return  # the supervisor puts a fresh cell in its place

    def _run(self, packet: bytes, fds: list[int], poll: select.poll) -> tuple[bytes, list[int]]:
        _, wall_s, cpu_s, flags, payload_bytes = wire.RUN.unpack_from(packet)
        started = time.monotonic()
        deadline = started + wall_s
        pid, pidfd = syscalls.clone_process(0, pidfd=True)
        if pid == 0:
            self._become_program(fds, flags, cpu_s, payload_bytes)
        # Straight to waiting: a page that is written while the child lives is copied, one written afterwards is not.
        poll.register(pidfd, select.POLLIN)
        ended = wire.BY_ITSELF
        ready = poll.poll(wall_s * 1000)
        while not ready and time.monotonic() < deadline:  # woken too early
            ready = poll.poll((deadline - time.monotonic()) * 1000)
        if (pidfd, select.POLLIN) not in ready:
            ended = wire.KILLED if ready else wire.WALL
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        if ended == wire.KILLED:
            wire.receive_packet(self.connection)  # nothing but "kill" comes now, or the end of the stream
        poll.unregister(pidfd)
        for fd in (pidfd, *fds):
            os.close(fd)
        _, status, usage = os.wait4(pid, 0)
        self.kill_tree()
        elapsed_s = time.monotonic() - started
        disk_full = status != 0 and self._disk_full()
        outputs = packet[wire.RUN.size :]
        found = (
            [files.open_file(self.scratch_fd, "work/" + name) for name in outputs.decode().split("\0")]
            if outputs
            else []
        )
        report = wire.REPORT.pack(
            status, ended, elapsed_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, disk_full
        )
        if not found:
            return report, []
        return report + bytes([fd is not None for fd in found]), [fd for fd in found if fd is not None]

    def _disk_full(self) -> bool:
        room = os.fstatvfs(self.scratch_fd)
        return self.plan.own_pids and (room.f_bavail == 0 or room.f_favail == 0)

    def _become_program(self, fds: list[int], flags: int, cpu_s: int, payload_bytes: int) -> NoReturn:
        """In the forked child: read the payload, let go of everything of the cell's, run. Never returns.

        Standard output and error are in place already, and so are all limits but the processor's. Each page this
        touches is a page fault per program, so it does as little as it can."""
        status = STARTUP_FAILED
        try:
            os.setsid()  # a signal to process group 0 would cross pid namespaces
            if self.plan.scope_program is not None:
                landlock.restrict_self(self.plan.scope_program)
            data = os.pread(fds[0], payload_bytes, 0)
            if flags & wire.HAS_STDIN:
                os.dup2(fds[1], 0)
            if flags & wire.HAS_PEER:
                os.dup2(fds[-1], PAIR_FD + 64)
                os.dup2(PAIR_FD + 64, PAIR_FD)
                os.closerange(PAIR_FD + 1, MAX_FD)
                os.close(3)
            else:
                os.closerange(3, MAX_FD)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
            syscalls.set_dumpable(True)  # /proc/self is its own again
            bash, seed, num_files, size = wire.PAYLOAD.unpack_from(data)
            at = wire.PAYLOAD.size + size
            if num_files:
                write_files(wire.unpack_files(data, at, num_files))
            if bash:
                self._run_bash(data[wire.PAYLOAD.size : at])
            seed_everything(seed)
            gc.enable()
            status = run_python(data[wire.PAYLOAD.size : at])
        except OSError as error:
            os.write(2, f"the program could not be started: {error}\n".encode())
        finally:
            os._exit(status)

    def _run_bash(self, code: bytes) -> NoReturn:
        path = os.path.join(self.plan.scratch, "tmp", ".program")
        with open(path, "wb") as file:
            file.write(code)
        os.execve(self.plan.bash, ["bash", path], dict(os.environ))
        raise AssertionError("execve returned")

    # -------------------------------------------------------------------------------------------- live processes

    def host(self) -> None:
        """Start one live process and serve the supervisor's wishes about it."""
        self._open_scratch()
        packet, fds = wire.receive_packet(self.connection)
        if not packet:
            return
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # the kernel reaps orphans
        pid = syscalls.clone_process()
        if pid == 0:
            self._become_live(packet, fds)
        wire.close_all(fds)
        os.dup2(0, 1)  # the end of the live process's output shall be seen
        os.dup2(0, 2)
        wire.send_packet(self.connection, wire.READY)
        while True:
            header, fds = wire.receive(self.connection)
            wire.close_all(fds)
            if header is None:
                break
            if header["op"] == "interrupt":
                os.kill(-1, signal.SIGINT)
                continue
            try:
                answer, opened = self._serve_file(header)
            except (OSError, ValueError) as error:
                answer, opened = {"error": str(error)}, []
            wire.send(self.connection, answer, opened)
            wire.close_all(opened)
        signal.signal(
            signal.SIGCHLD, signal.SIG_DFL
        )  # ignored, waiting would last until every descendant has ended by itself
        self.kill_tree()

    def _serve_file(self, header: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        path = f"{header['folder']}/{header['path']}"
        if header["op"] == "write":
            return {}, [files.create_file(self.scratch_fd, path)]
        fd = files.open_file(self.scratch_fd, path)
        return ({"error": "there is no such plain file"}, []) if fd is None else ({}, [fd])

    def _become_live(self, packet: bytes, fds: list[int]) -> NoReturn:
        status = STARTUP_FAILED
        try:
            bash, seed, cpu_s = wire.LIVE.unpack_from(packet)
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # the cell ignores it, and its children inherit that
            os.setsid()
            if self.plan.scope_program is not None:
                landlock.restrict_self(self.plan.scope_program)
            (live,) = fds
            os.dup2(live, 3)
            if bash:
                os.dup2(live, 0)
            os.closerange(4, MAX_FD)
            syscalls.set_dumpable(True)
            if cpu_s:
                resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
            if bash:
                self._become_bash()
            seed_everything(seed)
            LiveInterpreter(_socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, 3)).serve()
            status = 0
        except OSError as error:
            os.write(2, f"the session could not be started: {error}\n".encode())
        finally:
            os._exit(status)

    def _become_bash(self) -> NoReturn:
        # Python ignores some signals, and whoever started it may ignore others; a shell would inherit that.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        os.execve(self.plan.bash, ["bash", "--norc", "--noprofile"], dict(os.environ))
        raise AssertionError("execve returned")

    # -------------------------------------------------------------------------------------------- leaving nothing
    # behind

    def kill_tree(self) -> None:
        """Kill and reap every process that descends from this one: orphans are its children, so that it has none when
        none is left."""
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                return
            if self.plan.children is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            else:
                # Killing a child hands its children to this subreaper: they are in the list the next time round.
                for pid in os.pread(self.plan.children, 1 << 20, 0).split():
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)

    def _wipe(self) -> bool:
        """Empty `work` and `tmp`. False when that failed, or the folders are not what they were."""
        try:
            if (
                os.fstatvfs(self.scratch_fd).f_ffree != self.num_free_files
            ):  # mostly there is no file more than at first
                for fd in self.folders.values():
                    if os.listdir(fd):
                        files.remove_tree(fd)
                if len(os.listdir(self.scratch_fd)) != len(self.folders):
                    return False
            for name, look in self.looks:
                now = os.stat(name, dir_fd=self.scratch_fd, follow_symlinks=False)
                if now.st_ino != look.st_ino or now.st_mode != look.st_mode:
                    return False
            return True
        except OSError:
            return False
