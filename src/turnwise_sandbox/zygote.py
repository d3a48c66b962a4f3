"""The zygote: an interpreter with its libraries loaded, from which every cell is forked. Started by `handles.Zygote`.

    supervisor (the user's process)
      └── launcher        ends the zygote when the supervisor is gone
            └── zygote    first of its pid namespace, read-only root, no network; loaded, warmed, frozen; single thread
                  └── cell, cell, cell ...   each in namespaces of its own

It never reads a program, so no cell can find another's code in the memory it was forked from.
"""

from __future__ import annotations

import _socket
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from turnwise_sandbox import wire
from turnwise_sandbox.cell import CellKind, CellPlan, rehearse, run_cell
from turnwise_sandbox.guest.program import install_entropy, open_streams, warm_up
from turnwise_sandbox.kernel import landlock, limits, root, seccomp, syscalls
from turnwise_sandbox.types import Network

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
"""What most programs import. Every shared library more costs each fork some microseconds, so what few programs use is
not here."""

PRELOADED: dict[str, tuple[str, ...]] = {
    "std": (),
    "numpy": ("numpy", "numpy.linalg"),
    # Nine shared libraries and OpenSSL: every fork pays for them, and who needs them would wait long for their loading.
    "numpy_random": ("numpy", "numpy.linalg", "numpy.random"),
    "sympy": ("sympy",),
    "pytest": (
        "unittest",
        "unittest.mock",
        "pytest",
        "_pytest.assertion.rewrite",
        "_pytest.python",
        "_pytest.unittest",
    ),
}

PRELOADED_IF_THERE = {
    "pytest": (
        *(
            "faulthandler",
            "pdb",
            "readline",
            "xml.etree.ElementTree",
            "_pytest.faulthandler",
            "_pytest.helpconfig",
            "_pytest.junitxml",
        ),
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
"""Our own code, run once per profile so that what programs do first is loaded, compiled and cached before the first
fork."""


def main() -> NoReturn:
    """Start as the launcher; the zygote is its child."""
    config = json.loads(sys.argv[1])
    os.environ.pop("LD_BIND_NOW", None)  # for this process alone
    control = socket.socket(fileno=config["control"])
    # A supervisor in the background of a script ignores this signal; code in here shall be interrupted all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    supervisor = os.pidfd_open(os.getppid())
    launcher = os.pidfd_open(os.getpid())
    flags = 0
    if config["level"] == "full":
        flags = (
            syscalls.CLONE_NEWPID
            | syscalls.CLONE_NEWNS
            | syscalls.CLONE_NEWNET
            | syscalls.CLONE_NEWIPC
            | syscalls.CLONE_NEWUTS
        )
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

    kind: CellKind
    network: Network
    namespaces: int
    """CLONE_NEW* bits."""
    mount: list[syscalls.Call]
    """What is its own to write and to see; empty below level full."""
    give_up_privileges: list[syscalls.Call]
    restrict: list[syscalls.Call]
    plan: CellPlan


class _Zygote:
    def __init__(self, config: dict[str, Any], control: socket.socket, uid: int, gid: int) -> None:
        self.control, self.control_fd = control, control.fileno()
        self.level: str = config["level"]
        self.user_namespace: bool = config["user_namespace"]
        self.landlock_abi: int = config["landlock_abi"]
        self.seccomp: bool = config["seccomp"]
        self.uid, self.gid = uid, gid
        if self.user_namespace:
            syscalls.enter_user_namespace(uid, gid)
        self.has_proc = self.level == "full" and root.build_root(extra_paths=config["extra_paths"])
        os.chdir("/")
        preload(config["profile"])
        self.filters = {network: seccomp.build_filter(network=network) for network in NETWORKS}
        for program in self.filters.values():
            seccomp.hold_filter(program)
        self.bash = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.path.exists(path)), "/bin/sh")
        self.poll = select.poll()
        self.once: dict[int, tuple[int, int]] = {}
        """Cells that are their own program: pid to pidfd and the descriptor of the cell's end of its socket."""
        self.cells: set[int] = set()
        """Pids of the others, until they were let go of."""
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
        poll = self.poll
        poll.register(self.control, select.POLLIN)
        prepare = functools.lru_cache(maxsize=64)(self._prepare)
        # Every page that this loop touches is copied, or at least faulted, once per fork.
        while True:
            ready = dict(poll.poll(REAP_INTERVAL_MS if self.children == -1 else SWEEP_INTERVAL_MS))
            if self.once or self.cells or self.children != -1:
                self._reap()
            if self.control_fd not in ready:
                continue
            packet, fds = wire.receive_packet(self.control)
            if not packet:
                return
            uid, entry = wire.UID.unpack_from(packet)[0], prepare(packet[wire.UID.size :])
            try:
                pid, pidfd = syscalls.clone_process(entry.namespaces, pidfd=True)
            except OSError as error:
                wire.send(self.control, {"error": f"a process could not be started: {error.strerror}"})
                wire.close_all(fds)
                continue
            if pid == 0:
                self._become_cell(entry, uid, fds)
            wire.send_packet(self.control, CELL_MADE, [pidfd])
            if entry.kind == "once":
                self.once[pid] = pidfd, fds.pop(0)
                poll.register(pidfd, select.POLLIN)
            else:
                self.cells.add(pid)
                os.close(pidfd)
            wire.close_all(fds)

    def _report(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        """Tell the supervisor how a cell ended that was its own program."""
        pidfd, connection = self.once.pop(pid)
        self.poll.unregister(pidfd)
        cpu_s = usage.ru_utime + usage.ru_stime
        try:  # noqa: SIM105 - each name that this process touches costs a fork a page
            os.write(connection, wire.REPORT.pack(status, wire.BY_ITSELF, 0.0, cpu_s, usage.ru_maxrss * 1024, False))
        except OSError:  # the supervisor has let go of it
            pass
        os.close(pidfd)
        os.close(connection)

    def _reap(self) -> None:
        """Let go of cells that ended; of most, the supervisor sees the end itself. Where no pid namespace ends what a
        killed cell leaves, that is now a child of this process, and killed."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid in self.once:
                    self._report(pid, status, usage)
                elif pid:
                    self.cells.discard(pid)
                else:
                    break
        except ChildProcessError:
            return
        while self.children != -1:
            strays = set(map(int, os.pread(self.children, 1 << 20, 0).split())) - self.cells
            if not strays:
                return
            for pid in strays:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _become_cell(self, entry: _Entry, uid: int, fds: list[int]) -> NoReturn:
        connection = _socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fds[0])
        try:
            for fd in fds[3:]:
                os.write(fd, b"0")
            plan = self._enter(entry, uid) if self.level == "full" else self._enter_beside_others(entry, uid)
        except OSError as error:
            wire.send(connection, {"error": f"{type(error).__name__}: {error}"})
            os._exit(1)
        wire.close_all([*fds[3:], self.control_fd])
        run_cell(connection, fds[1], fds[2], plan, entry.kind)

    def _prepare(self, packet: bytes) -> _Entry:
        """What a packet asks for. The calls are recorded here, where many cells find them: each page a fresh fork
        touches is copied."""
        header = json.loads(packet)
        full, network = self.level == "full", header["network"]
        scratch = root.SCRATCH if full else header["scratch"]
        namespaces = 0
        if full:
            namespaces = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
            if network == "loopback":
                namespaces |= syscalls.CLONE_NEWNET
            if self.user_namespace:
                namespaces |= syscalls.CLONE_NEWUSER

        def mount() -> None:
            root.mount_scratch(scratch, bytes=header["disk_bytes"], inodes=header["num_files"])
            if self.has_proc:
                root.mount_proc()

        def give_up_privileges() -> None:
            if full:
                root.make_folders(scratch)
                syscalls.syscall("chdir", os.fsencode(f"{scratch}/work"))
            syscalls.drop_privileges(bounding_set=False)
            if full:
                syscalls.set_pdeathsig()  # elsewhere it must live to kill its programs, and ends with its socket
            syscalls.set_dumpable(False)

        def restrict() -> None:
            if full and self.landlock_abi:
                landlock.restrict_self(self.rulesets[network])
            limits.apply_rlimits(**header["rlimits"])
            if self.seccomp:
                seccomp.install_filter(self.filters[network])

        return _Entry(
            kind=header["kind"],
            network=network,
            namespaces=namespaces,
            mount=syscalls.record(mount) if full else [],
            give_up_privileges=syscalls.record(give_up_privileges),
            restrict=syscalls.record(restrict),
            plan=CellPlan(scratch=scratch, own_pids=full, scope_program=None, bash=self.bash, children=None),
        )

    def _enter(self, entry: _Entry, uid: int) -> CellPlan:
        """Namespaces, mounts, identity, Landlock, limits, seccomp: in this order, since each forbids what came
        before."""
        if self.user_namespace:
            syscalls.enter_user_namespace(self.uid, self.gid)
        syscalls.perform(entry.mount)
        if entry.namespaces & syscalls.CLONE_NEWNET:
            syscalls.bring_loopback_up()
        if uid != wire.SAME_UID:
            syscalls.set_identity(uid, uid)
        syscalls.perform(entry.give_up_privileges)
        syscalls.perform(entry.restrict)
        return entry.plan

    def _enter_beside_others(self, entry: _Entry, uid: int) -> CellPlan:
        """The same at lower levels, where cells share the host's namespaces: folders instead of mounts, and rules that
        keep them apart."""
        scratch = entry.plan.scratch
        if self.level != "uid":
            os.makedirs(os.path.join(scratch, "work"), exist_ok=True)
            os.makedirs(os.path.join(scratch, "tmp"), exist_ok=True)
        os.chdir(os.path.join(scratch, "work"))
        syscalls.set_child_subreaper()
        syscalls.drop_bounding_set()
        if uid != wire.SAME_UID:
            syscalls.set_identity(uid, uid)
        syscalls.perform(entry.give_up_privileges)
        children = None
        if self.level != "uid":
            children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        scope = None
        if self.landlock_abi:
            if self.landlock_abi >= 6:
                scope = landlock.build_signal_scope(abi=self.landlock_abi)
            landlock.restrict_self(self._build_ruleset(scratch, entry.network))
        syscalls.perform(entry.restrict)
        os.environ.update(_folders(scratch))
        return replace(entry.plan, scope_program=scope, children=children)

    def _build_ruleset(self, writable: str, network: Network) -> int:
        """A Landlock ruleset: the interpreter is readable, `writable` and what is mounted below it writable."""
        read = ["/"] if self.level == "full" else root.interpreter_paths()
        return landlock.build_ruleset(
            read=read, read_write=[writable, "/dev/null"], abi=self.landlock_abi, network=network
        )


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
    rehearse()
    gc.collect()
    gc.freeze()
    syscalls.collapse_heap()
