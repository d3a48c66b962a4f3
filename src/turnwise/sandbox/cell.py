"""A cell: the first process of its own namespaces, which forks one program after the other and leaves nothing of them behind.

A *slot* cell runs programs one at a time: fork, wait with a deadline, kill everything that is left, reap it, wipe the scratch
folder, report. A *host* cell starts one live process (a Python interpreter or a shell), reaps orphans and opens files for the
supervisor. Both end when the supervisor's end of their socket closes, and are ended by the kernel when their zygote dies.

The cell itself never reads a program's code, and runs with the same rights as the program: none. What it reports (wait status,
times, limits) is to be trusted because the program cannot signal, trace or open it.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from turnwise.sandbox import wire
from turnwise.sandbox.guest.live import LiveInterpreter
from turnwise.sandbox.guest.program import run_python, seed_everything, write_files
from turnwise.sandbox.kernel import files, landlock, limits, syscalls

PAIR_FD = 4
"""Where a program finds its end of the socket to the program it is paired with."""

MAX_FD = 1 << 20

STARTUP_FAILED = 125
"""Exit status of a program whose process could not be prepared (a full scratch folder, an unreadable payload)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """What a cell needs to know about its place; made by the zygote."""

    scratch: str
    """Folder of its own, holding `work` and `tmp`."""
    own_pids: bool
    """It is the first process of a pid namespace, so that signalling -1 reaches exactly its descendants."""
    own_uid: bool
    """No other process runs under its user id."""
    scope_program: int | None
    """Landlock ruleset each program adds so that it cannot signal the cell; None where namespaces do that."""
    bash: str


def run_cell(connection: socket.socket, stdout: int, stderr: int, plan: CellPlan, *, live: bool) -> NoReturn:
    """Serve requests until the socket closes. Never returns."""
    os.chdir(os.path.join(plan.scratch, "work"))
    devnull = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for standard in (0, 1, 2):
        os.dup2(devnull, standard)
    place = _Place(connection, stdout, stderr, plan, devnull)
    try:
        if live:
            place.host()
        else:
            place.serve_slot()
    finally:
        os._exit(0)


class _Place:
    def __init__(self, connection: socket.socket, stdout: int, stderr: int, plan: CellPlan, devnull: int) -> None:
        self.connection = connection
        self.stdout = stdout
        self.stderr = stderr
        self.plan = plan
        self.devnull = devnull
        self.scratch_fd = os.open(plan.scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.children = -1
        if not (plan.own_pids or plan.own_uid):
            self.children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)

    # -------------------------------------------------------------------------------------------- one-shot programs

    def serve_slot(self) -> None:
        wire.send(self.connection, {"ready": True})
        while True:
            header, fds = wire.receive(self.connection)
            if header is None:
                return
            if header["op"] != "run":
                wire.close_all(fds)  # a kill that arrives after its program ended
                continue
            report = self._run(header, fds)
            clean = self._wipe()
            wire.send(self.connection, report["header"], report["fds"])
            wire.close_all(report["fds"])
            if not clean:
                return  # the supervisor puts a fresh cell in its place

    def _run(self, header: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.monotonic()
        pid, pidfd = syscalls.clone_process(0, pidfd=True)
        if pid == 0:
            self._become_program(header, fds)
        wire.close_all(fds)
        ended_by = self._wait(pidfd, started + header["wall_s"])
        if ended_by is not None:
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        os.close(pidfd)
        _, status, usage = os.wait4(pid, 0)
        wall_s = time.monotonic() - started
        self.kill_tree()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        room = os.fstatvfs(self.scratch_fd)
        found = [files.open_file(self.scratch_fd, "work/" + name) for name in header["outputs"]] if header["outputs"] else []
        opened = [fd for fd in found if fd is not None]
        return {
            "header": {
                "status": status,
                "ended_by": ended_by,
                "wall_s": wall_s,
                "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                "max_rss_bytes": usage.ru_maxrss * 1024,
                "disk_full": self.plan.own_pids and (room.f_bavail == 0 or room.f_favail == 0),
                "outputs": [fd is not None for fd in found],
            },
            "fds": opened,
        }

    def _wait(self, pidfd: int, deadline: float) -> str | None:
        """Wait for the program. None when it ended by itself, else why it must be killed: "wall", "killed" or "gone"."""
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self.connection, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            events = poll.poll(max(0.0, left) * 1000)
            ready = {fd for fd, _ in events}
            if pidfd in ready:
                return None
            if self.connection.fileno() in ready:
                header, fds = wire.receive(self.connection)
                wire.close_all(fds)
                return "killed" if header is not None else "gone"
            if time.monotonic() >= deadline:
                return "wall"

    def _become_program(self, header: dict[str, Any], fds: list[int]) -> NoReturn:
        """In the forked child: take the descriptors, the limits and the payload, then run it. Never returns."""
        status = STARTUP_FAILED
        try:
            self._enter_program(header, fds)
            payload, blobs = wire.unpack_payload(3)
            os.close(3)
            seed_everything(payload["seed"])
            write_files(payload["files"], blobs[1:])
            if payload["language"] == "bash":
                self._run_bash(blobs[0])
            status = run_python(blobs[0], payload["name"])
        except OSError as error:
            os.write(2, f"the program could not be started: {error}\n".encode())
        finally:
            os._exit(status)

    def _enter_program(self, header: dict[str, Any], fds: list[int]) -> None:
        os.setsid()  # a signal to process group 0 would cross pid namespaces
        payload, *rest = fds
        stdin = rest.pop(0) if header["stdin"] else self.devnull
        # Above every number that is about to be overwritten.
        high = [_dup_high(fd) for fd in (stdin, self.stdout, self.stderr, payload, *rest)]
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        os.closerange(len(high), MAX_FD)
        if self.plan.scope_program is not None:
            landlock.restrict_self(self.plan.scope_program)
        syscalls.set_dumpable(True)  # /proc/self is its own again
        limits.apply_rlimits(**header["rlimits"])

    def _run_bash(self, code: bytes) -> NoReturn:
        path = os.path.join(self.plan.scratch, "tmp", ".program")
        with open(path, "wb") as file:
            file.write(code)
        os.execve(self.plan.bash, ["bash", path], dict(os.environ))
        raise AssertionError("execve returned")

    # -------------------------------------------------------------------------------------------- live processes

    def host(self) -> None:
        """Start one live process and serve the supervisor's wishes about it."""
        header, fds = wire.receive(self.connection)
        if header is None:
            return
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps orphans
        pid = syscalls.clone_process()
        if pid == 0:
            self._become_live(header, fds)
        wire.close_all(fds)
        wire.close_all([self.stdout, self.stderr])
        wire.send(self.connection, {"ready": True})
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
        self.kill_tree()

    def _serve_file(self, header: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        path = f"{header['folder']}/{header['path']}"
        if header["op"] == "write":
            return {}, [files.create_file(self.scratch_fd, path)]
        fd = files.open_file(self.scratch_fd, path)
        return ({"error": "there is no such plain file"}, []) if fd is None else ({}, [fd])

    def _become_live(self, header: dict[str, Any], fds: list[int]) -> NoReturn:
        status = STARTUP_FAILED
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            (live,) = fds
            if header["language"] == "bash":
                high = [_dup_high(fd) for fd in (live, self.stdout, self.stderr, live)]
            else:
                high = [_dup_high(fd) for fd in (self.devnull, self.stdout, self.stderr, live)]
            for target, fd in enumerate(high):
                os.dup2(fd, target)
            os.closerange(4, MAX_FD)
            if self.plan.scope_program is not None:
                landlock.restrict_self(self.plan.scope_program)
            syscalls.set_dumpable(True)
            limits.apply_rlimits(**header["rlimits"])
            if header["language"] == "bash":
                os.execve(self.plan.bash, ["bash", "--norc", "--noprofile"], dict(os.environ))
            seed_everything(header["seed"])
            LiveInterpreter(socket.socket(fileno=3)).serve()
            status = 0
        except OSError as error:
            os.write(2, f"the session could not be started: {error}\n".encode())
        finally:
            os._exit(status)

    # -------------------------------------------------------------------------------------------- leaving nothing behind

    def kill_tree(self) -> None:
        """Kill and reap every process that descends from this one."""
        while True:
            if self.plan.own_pids or self.plan.own_uid:
                try:
                    os.kill(-1, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            else:
                # Killing a child hands its children to this subreaper: they are in the list the next time round.
                for pid in os.pread(self.children, 1 << 20, 0).split():
                    os.kill(int(pid), signal.SIGKILL)
            try:
                if os.waitpid(-1, 0) == (0, 0):
                    return
            except ChildProcessError:
                return

    def _wipe(self) -> bool:
        """Empty `work` and `tmp`. False when something could not be removed."""
        for name in ("work", "tmp"):
            try:
                fd = files.open_folder(self.scratch_fd, name)
                try:
                    if os.listdir(fd):
                        files.remove_tree(fd)
                finally:
                    os.close(fd)
            except OSError:
                return False
        return not set(os.listdir(self.scratch_fd)) - {"work", "tmp"}


def _dup_high(fd: int) -> int:
    """A duplicate above the numbers programs see."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)


if sys.version_info < (3, 11):  # pragma: no cover
    raise ImportError("the sandbox needs Python 3.11")
