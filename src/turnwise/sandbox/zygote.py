"""The zygote: an interpreter with its libraries loaded, from which every cell is forked. Started by `handles.Zygote`.

    supervisor (the user's process)
      └── launcher        ends the zygote when the supervisor is gone
            └── zygote    first of its pid namespace, read-only root, no network; loaded, warmed, frozen; single thread
                  └── cell, cell, cell ...   each in namespaces of its own

It never reads a program, so no cell can find another's code in the memory it was forked from.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from turnwise.sandbox import wire
from turnwise.sandbox.cell import CellPlan, run_cell
from turnwise.sandbox.guest.program import install_entropy, open_streams, warm_up
from turnwise.sandbox.kernel import landlock, limits, root, seccomp, syscalls
from turnwise.sandbox.types import Network

REAP_INTERVAL_MS = 1000
SWEEP_INTERVAL_MS = 100
CELL_MADE = b'{"cell": true}'
NETWORKS: tuple[Network, ...] = ("none", "loopback")

STANDARD = [
    "abc",
    "ast",
    "bisect",
    "builtins",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "io",
    "itertools",
    "json",
    "linecache",
    "math",
    "numbers",
    "operator",
    "os",
    "random",
    "re",
    "statistics",
    "string",
    "sys",
    "textwrap",
    "threading",
    "time",
    "traceback",
    "types",
    "typing",
]
"""What most programs import. Every shared library more costs each fork some microseconds, so what few programs use is not here."""

PRELOADED: dict[str, tuple[str, ...]] = {
    "std": (),
    "numpy": ("numpy", "numpy.linalg"),
    # Nine shared libraries and OpenSSL: every fork pays for them, and who needs them would wait long for their loading.
    "numpy_random": ("numpy", "numpy.linalg", "numpy.random"),
    "sympy": ("sympy",),
    "pytest": ("unittest", "unittest.mock", "pytest", "_pytest.assertion.rewrite", "_pytest.python", "_pytest.unittest"),
}

PRELOADED_IF_THERE = {
    "pytest": (
        *("faulthandler", "pdb", "readline", "xml.etree.ElementTree", "_pytest.faulthandler", "_pytest.helpconfig", "_pytest.junitxml"),
        *("_pytest.pastebin", "_pytest.setuponly", "_pytest.setupplan", "_pytest.skipping", "_pytest.warnings"),
    )
}
"""What a library loads by itself in its first run. Other versions of it may not have all of these."""

WARM_UP_NUMPY = """
import numpy as np
a = np.arange(9.0).reshape(3, 3)
np.linalg.solve(a + np.eye(3), np.ones(3))
print(a @ a, end="")
"""
WARM_UP: dict[str, str] = {
    "std": """
import json, re
x = [i * i for i in range(9)]
re.compile("a+").match("aa")
json.dumps({"a": x})
print(x, end="")
""",
    "numpy": WARM_UP_NUMPY,
    "numpy_random": WARM_UP_NUMPY + "np.random.rand()\n",
    "sympy": """
import sympy as s
x = s.symbols("x")
print(s.integrate(x * s.sin(x), x), s.solve(x**2 - 2, x), s.factor(x**2 - 1), end="")
""",
    "pytest": """
import unittest
unittest.TestLoader().loadTestsFromTestCase(type("T", (unittest.TestCase,), {"test_a": lambda self: None}))
""",
}
"""Our own code, run once per profile so that what programs do first is loaded, compiled and cached before the first fork."""


def main() -> NoReturn:
    """Start as the launcher; the zygote is its child."""
    config = json.loads(sys.argv[1])
    control = socket.socket(fileno=config["control"])
    # A supervisor in the background of a script ignores this signal; code in here shall be interrupted all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    supervisor = os.pidfd_open(os.getppid())
    launcher = os.pidfd_open(os.getpid())
    flags = 0
    if config["level"] == "full":
        flags = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
        if config["user_namespace"]:
            flags |= syscalls.CLONE_NEWUSER
    uid, gid = os.geteuid(), os.getegid()
    pid, zygote = syscalls.clone_process(flags, pidfd=True)
    if pid:
        _watch(supervisor, zygote, control)
    syscalls.set_pdeathsig()
    if select.select([launcher], [], [], 0)[0]:
        os._exit(1)  # the launcher died before its death could be signalled
    os.close(launcher)
    os.close(supervisor)
    try:
        _Zygote(config, control, uid, gid).serve()
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()  # to the log that the supervisor quotes
            sys.stderr.flush()
        os._exit(1)


def _watch(supervisor: int, zygote: int, control: socket.socket) -> NoReturn:
    """Wait for whichever ends first, then take the zygote along. The kernel ends its descendants."""
    control.close()
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.register(zygote, select.POLLIN)
    poll.poll()
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(zygote, signal.SIGKILL)
    os._exit(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A cell's way in, as its supervisor wishes it."""

    header: dict[str, Any]
    namespaces: int
    """CLONE_NEW* bits."""
    uid: int
    gid: int
    scratch: str
    mount: list[syscalls.Call]
    """Of the scratch folder, at level full."""
    let_go: list[syscalls.Call]
    """Of identity and privileges."""
    limit: list[syscalls.Call]


class _Zygote:
    def __init__(self, config: dict[str, Any], control: socket.socket, uid: int, gid: int) -> None:
        self.control = control
        self.level: str = config["level"]
        self.user_namespace: bool = config["user_namespace"]
        self.landlock_abi: int = config["landlock_abi"]
        self.seccomp: bool = config["seccomp"]
        self.uid, self.gid = uid, gid
        if self.user_namespace:
            syscalls.enter_user_namespace(uid, gid)
        if self.level == "full":
            root.build_root(extra_paths=config["extra_paths"])
        os.chdir("/")
        preload(config["profile"])
        self.filters = {network: seccomp.build_filter(network=network) for network in NETWORKS}
        for program in self.filters.values():
            seccomp.hold_filter(program)
        self.bash = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.path.exists(path)), "/bin/sh")
        self.once: dict[int, tuple[int, socket.socket]] = {}
        self.cells: set[int] = set()
        self.children = -1
        self.rulesets: dict[Network, int] = {}
        if self.level == "full":
            # What is the same for all cells is done here once: each step in a fresh cell costs its page faults.
            os.environ.update(_folders(root.SCRATCH))
            syscalls.drop_bounding_set()
            if self.landlock_abi:
                self.rulesets = {network: self._build_ruleset(root.SCRATCH_PARENT, network) for network in self.filters}
        elif self.level != "uid" or os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            syscalls.set_child_subreaper()
            self.children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        syscalls.set_dumpable(False)

    def serve(self) -> None:
        """Fork a cell per packet until the supervisor closes its end."""
        wire.send(self.control, {"ready": True})
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        prepare = functools.lru_cache(maxsize=64)(self._prepare)
        while True:
            ready = {fd for fd, _ in poll.poll(REAP_INTERVAL_MS if self.children == -1 else SWEEP_INTERVAL_MS)}
            for pidfd in ready & self.once.keys():
                poll.unregister(pidfd)
                self._report(pidfd)
            self._reap()
            if self.control.fileno() not in ready:
                continue
            packet, fds = wire.receive_packet(self.control)
            if not packet:
                return
            entry = prepare(packet)
            try:
                pid, pidfd = syscalls.clone_process(entry.namespaces, pidfd=True)
            except OSError as error:
                wire.send(self.control, {"error": f"a process could not be started: {error.strerror}"})
                wire.close_all(fds)
                continue
            if pid == 0:
                self._become_cell(entry, fds)
            self.cells.add(pid)
            wire.send_packet(self.control, CELL_MADE, [pidfd])
            if entry.header["kind"] == "once":
                self.once[pidfd] = pid, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fds.pop(0))
                poll.register(pidfd, select.POLLIN)
            else:
                os.close(pidfd)
            wire.close_all(fds)

    def _report(self, pidfd: int) -> None:
        """Tell the supervisor how a cell ended that was its own program."""
        pid, connection = self.once.pop(pidfd)
        os.close(pidfd)
        with connection, contextlib.suppress(ChildProcessError, OSError):
            _, status, usage = os.wait4(pid, 0)
            cpu_s = usage.ru_utime + usage.ru_stime
            wire.send_packet(connection, wire.REPORT.pack(status, wire.BY_ITSELF, 0.0, cpu_s, usage.ru_maxrss * 1024, False))

    def _reap(self) -> None:
        """Let go of cells that ended; the supervisor watches them itself. Where no pid namespace ends what a killed cell leaves, that
        is now a child of this process, and killed."""
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self.cells.discard(pid)
        except ChildProcessError:
            return
        while self.children != -1:
            strays = set(map(int, os.pread(self.children, 1 << 20, 0).split())) - self.cells
            if not strays:
                return
            for pid in strays:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _become_cell(self, entry: _Entry, fds: list[int]) -> NoReturn:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fds[0])
        try:
            self.control.close()
            plan = self._enter(entry, fds[3:])
            wire.close_all(fds[3:])
        except OSError as error:
            wire.send(connection, {"error": f"{type(error).__name__}: {error}"})
            os._exit(1)
        run_cell(connection, fds[1], fds[2], plan, entry.header["kind"])

    def _prepare(self, packet: bytes) -> _Entry:
        """What a packet asks for. The calls are recorded here, where many cells find them: each page a fresh fork touches is copied."""
        header = json.loads(packet)
        full = self.level == "full"
        own_uid: int | None = header["uid"]
        uid, gid = (self.uid, self.gid) if own_uid is None else (own_uid, own_uid)
        scratch = root.SCRATCH if full else header["scratch"]
        namespaces = 0
        if full:
            namespaces = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
            if header["network"] == "loopback":
                namespaces |= syscalls.CLONE_NEWNET
            if self.user_namespace:
                namespaces |= syscalls.CLONE_NEWUSER

        def mount() -> None:
            root.mount_scratch(scratch, bytes=header["disk_bytes"], inodes=header["num_files"], uid=uid, gid=gid)

        def let_go() -> None:
            if own_uid is not None:
                syscalls.set_identity(uid, gid)
            syscalls.drop_privileges(bounding_set=False)
            if full:
                syscalls.set_pdeathsig()  # elsewhere it must live to kill its programs, and ends with its socket
            syscalls.set_dumpable(False)

        return _Entry(
            header=header,
            namespaces=namespaces,
            uid=uid,
            gid=gid,
            scratch=scratch,
            mount=syscalls.record(mount),
            let_go=syscalls.record(let_go),
            limit=syscalls.record(lambda: limits.apply_rlimits(**header["rlimits"])),
        )

    def _enter(self, entry: _Entry, cgroup_fds: list[int]) -> CellPlan:
        """Namespaces, mounts, identity, Landlock, seccomp: in this order, since each forbids what came before."""
        for fd in cgroup_fds:
            os.write(fd, b"0")
        full, scratch, network = self.level == "full", entry.scratch, entry.header["network"]
        if self.user_namespace:
            syscalls.enter_user_namespace(entry.uid, entry.gid)
        if full:
            syscalls.perform(entry.mount)
            root.mount_proc()
            if network == "loopback":
                syscalls.bring_loopback_up()
        elif self.level != "uid":
            os.makedirs(os.path.join(scratch, "work"), exist_ok=True)
            os.makedirs(os.path.join(scratch, "tmp"), exist_ok=True)
        if not full:
            syscalls.set_child_subreaper()
            syscalls.drop_bounding_set()
        syscalls.perform(entry.let_go)
        children = None
        if self.level not in ("full", "uid"):
            children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        scope = None
        if self.landlock_abi:
            if not full and self.landlock_abi >= 6:
                scope = landlock.build_signal_scope(abi=self.landlock_abi)
            landlock.restrict_self(self.rulesets[network] if full else self._build_ruleset(scratch, network))
        syscalls.perform(entry.limit)
        if self.seccomp:
            seccomp.install_filter(self.filters[network])
        if not full:
            os.environ.update(_folders(scratch))
        return CellPlan(scratch=scratch, own_pids=full, scope_program=scope, bash=self.bash, children=children)

    def _build_ruleset(self, writable: str, network: Network) -> int:
        """A Landlock ruleset: the interpreter is readable, `writable` and what is mounted below it writable."""
        read = ["/"] if self.level == "full" else root.interpreter_paths()
        return landlock.build_ruleset(read=read, read_write=[writable, "/dev/null"], abi=self.landlock_abi, network=network)


def _folders(scratch: str) -> dict[str, str]:
    return {"HOME": f"{scratch}/work", "PWD": f"{scratch}/work", "TMPDIR": f"{scratch}/tmp"}


def preload(profile: str) -> None:
    """Import, run a little of everything, then move all of it out of the collector's and the page fault's way.

    Raises ImportError for a library that is not installed, RuntimeError when a library left a thread running: a forked
    copy of a process with threads is broken.
    """
    for name in [*STANDARD, *PRELOADED[profile]]:
        importlib.import_module(name)
    for name in PRELOADED_IF_THERE.get(profile, ()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for level in dict.fromkeys(("std", profile)):
        warm_up(WARM_UP[level])
    threads = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ["1"]
    if len(threads) != 1:
        raise RuntimeError(f"profile {profile} left {len(threads) - 1} threads running; it cannot be forked")
    install_entropy()
    open_streams()
    gc.collect()
    gc.freeze()
    syscalls.collapse_heap()
