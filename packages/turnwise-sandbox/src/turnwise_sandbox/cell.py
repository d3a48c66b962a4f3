"""A cell: the first process of its own namespaces, which forks one program after the other and removes what each left.

A *slot* cell runs one program at a time: it forks, waits until the deadline, kills and reaps every process that is
left, wipes the scratch folder and reports. A cell that runs *once* becomes its only program, and its zygote reports. A
*host* cell starts one live process (a Python interpreter or a shell), reaps orphans and opens files for the supervisor.
Slot and host cells end when the supervisor closes its end of their socket; the kernel ends every cell when its zygote
dies.

Every page that a cell touches before a program runs is copied in the fork. Hence `_socket` and `_signal`, whose
wrappers in the standard library touch dozens of pages.

The cell never reads a program's code, and has no more rights than the program. Its reports (wait status, times, limits)
can be trusted because the program cannot signal, trace or open the cell."""

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
"""The descriptor of a program's socket to the program that it is paired with."""

MAX_FD = 1 << 20
"""Above every descriptor that a cell can have."""

NUM_REHEARSALS = 32
"""Number of calls of everything that is rehearsed; Python 3.11 begins to specialize a function at its eighth call."""

STARTUP_FAILED = 125
"""Exit status of a program whose process could not be prepared (a full scratch folder, an unreadable payload)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """The properties of the place where a cell runs; made by the zygote."""

    scratch: str
    """The cell's own folder, which holds `work` and `tmp`."""
    own_pids: bool
    """Whether the cell is the first process of a pid namespace, so that signalling -1 reaches exactly its
    descendants."""
    scope_program: int | None
    """Landlock ruleset that keeps a program from signalling the cell; None if namespaces do that."""
    bash: str
    """Path of the shell."""
    tree: int | None = None
    """Descriptor of the folder in which the supervisor finds what programs change in a tree; None without a tree."""
    children: int | None
    """Descriptor of the list of this process's children, opened before Landlock closed /proc; None if signalling -1
    reaches them all."""


def run_cell(connection: _socket.socket, stdout: int, stderr: int, plan: CellPlan, kind: CellKind) -> NoReturn:
    """Serve requests until the socket closes. Expects the cell's `work` as the working folder and the null device as
    standard input. Never returns."""
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
    """Do what every cell and program does first, until Python has specialized the code (PEP 659) and filled its caches.

    Forks then inherit the result, instead of repeating the work in every fork.
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
            LiveInterpreter(connection).run(b"x = 1\nx", 0)
            threading.active_count()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # undo the handler of the rehearsed interpreter


class _Place:
    """The cell's process: its socket, its plan and its folders."""

    def __init__(self, connection: _socket.socket, plan: CellPlan) -> None:
        self.connection = connection
        self.plan = plan

    def _send_ready(self) -> None:
        """Tell the supervisor that programs can be sent, and pass it the folder with the tree's changes."""
        if self.plan.tree is None:
            wire.send_packet(self.connection, wire.READY)
        else:
            wire.send_packet(self.connection, wire.READY, [self.plan.tree])
            os.close(self.plan.tree)

    def _open_scratch(self) -> None:
        self.scratch_fd = os.open(self.plan.scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _open_folders(self) -> None:
        self._open_scratch()
        self.folders = {name: files.open_folder(self.scratch_fd, name) for name in ("work", "tmp")}
        self.stats = [(name, os.fstat(fd)) for name, fd in self.folders.items()]
        # The count means something only if the file system is the cell's own.
        self.num_free_files = os.fstatvfs(self.scratch_fd).f_ffree if self.plan.own_pids else None

    # -------------------------------------------------------------------------------------------- one-shot programs

    def run_once(self) -> None:
        packet, fds = wire.receive_packet(self.connection)
        if packet:
            _, _, cpu_s, flags, payload_bytes = wire.RUN.unpack_from(packet)
            self._become_program(fds, flags, cpu_s, payload_bytes)

    def serve_slot(self) -> None:
        self._open_folders()
        self._send_ready()
        connection, wipe = self.connection, self._wipe
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        gc.disable()  # a collection would touch, and so copy, the pages of every object
        while True:
            packet, fds = wire.receive_packet(connection)
            if not packet:
                return
            if packet == wire.KILL:
                continue  # the program ended before the request to kill it arrived
            report, opened = self._run(packet, fds, poll)
            clean = wipe()
            wire.send_packet(connection, report if clean else wire.mark_last(report), opened)
            wire.close_all(opened)
            if not clean:
                return  # the supervisor replaces this cell

    def _run(self, packet: bytes, fds: list[int], poll: select.poll) -> tuple[bytes, list[int]]:
        _, wall_s, cpu_s, flags, payload_bytes = wire.RUN.unpack_from(packet)
        started = time.monotonic()
        deadline = started + wall_s
        pid, pidfd = syscalls.clone_process(0, pidfd=True)
        if pid == 0:
            self._become_program(fds, flags, cpu_s, payload_bytes)
        # Wait at once: a page that this process writes while the child lives is copied, a page written later is not.
        poll.register(pidfd, select.POLLIN)
        ended = wire.BY_ITSELF
        ready = poll.poll(wall_s * 1000)
        while not ready and time.monotonic() < deadline:  # woken too early
            ready = poll.poll((deadline - time.monotonic()) * 1000)
        if (pidfd, select.POLLIN) not in ready:
            ended = wire.KILLED if ready else wire.WALL
            if not ready:
                os.kill(pid, signal.SIGXCPU)  # a Python program writes what it still holds
                poll.poll(wire.FLUSH_S * 1000)
            os.kill(pid, signal.SIGKILL)  # the pid is still the child's, since it has not been reaped
        if ended == wire.KILLED:
            wire.receive_packet(self.connection)  # the request to kill, or the end of the stream
        poll.unregister(pidfd)
        for fd in (pidfd, *fds):
            os.close(fd)
        _, status, usage = os.wait4(pid, 0)
        self.kill_tree()
        elapsed_s = time.monotonic() - started
        disk_full = status != 0 and self._disk_full()
        outputs = packet[wire.RUN.size :]
        names = outputs.decode().split("\0") if outputs else []
        opened = [files.open_file(self.scratch_fd, "work/" + name) for name in names]
        report = wire.REPORT.pack(
            status, ended, elapsed_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, disk_full
        )
        if not opened:
            return report, []
        return report + bytes([fd is not None for fd in opened]), [fd for fd in opened if fd is not None]

    def _disk_full(self) -> bool:
        room = os.fstatvfs(self.scratch_fd)
        return self.plan.own_pids and (room.f_bavail == 0 or room.f_favail == 0)

    def _become_program(self, fds: list[int], flags: int, cpu_s: int, payload_bytes: int) -> NoReturn:
        """In the forked child: read the payload, close the cell's descriptors, run. Never returns.

        Standard output and error are inherited, as are all limits but that of processor time. Each page touched here is
        a page fault per program, so this does as little as possible."""
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
            syscalls.set_dumpable(True)  # gives the program its /proc/self
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
        """Start one live process, then answer the supervisor's requests about it."""
        self._open_scratch()
        if self.plan.tree is not None:
            self._send_ready()
        packet, fds = wire.receive_packet(self.connection)
        if not packet:
            return
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # the kernel reaps orphans
        pid = syscalls.clone_process()
        if pid == 0:
            self._become_live(packet, fds)
        wire.close_all(fds)
        os.dup2(0, 1)  # so that the output streams end with the live process
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
        # While SIGCHLD is ignored, waiting would last until every descendant has ended by itself.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.kill_tree()

    def _serve_file(self, header: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        if header["op"] == "folder":
            return {}, [files.open_folder(self.scratch_fd, header["folder"])]
        path = f"{header['folder']}/{header['path']}"
        if header["op"] == "write":
            return {}, [files.create_file(self.scratch_fd, path)]
        fd = files.open_file(self.scratch_fd, path)
        return ({"error": "there is no such plain file that may be read"}, []) if fd is None else ({}, [fd])

    def _become_live(self, packet: bytes, fds: list[int]) -> NoReturn:
        status = STARTUP_FAILED
        try:
            bash, seed, cpu_s = wire.LIVE.unpack_from(packet)
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # children inherit the cell's ignoring it
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
        # Python ignores some signals, and the process that started it may ignore others; a shell would inherit that.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        os.execve(self.plan.bash, ["bash", "--norc", "--noprofile"], dict(os.environ))
        raise AssertionError("execve returned")

    # -------------------------------------------------------------------------------------------- cleaning up

    def kill_tree(self) -> None:
        """Kill and reap every descendant of this process. Orphans become its children, so that none are left when it
        has no children."""
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
                # The children of a killed child become children of this subreaper, and are in the next list.
                for pid in os.pread(self.plan.children, 1 << 20, 0).split():
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)

    def _wipe(self) -> bool:
        """Empty `work` and `tmp`. False if that failed, if the folders were replaced or changed, and for a tree, whose
        changes the supervisor reads next."""
        if self.plan.tree is not None:
            return False
        try:
            # Most programs leave no file, and the count of free files shows it.
            if os.fstatvfs(self.scratch_fd).f_ffree != self.num_free_files:
                for fd in self.folders.values():
                    if os.listdir(fd):
                        files.remove_tree(fd)
                if len(os.listdir(self.scratch_fd)) != len(self.folders):
                    return False
            for name, before in self.stats:
                now = os.stat(name, dir_fd=self.scratch_fd, follow_symlinks=False)
                if now.st_ino != before.st_ino or now.st_mode != before.st_mode:
                    return False
            return True
        except OSError:
            return False
