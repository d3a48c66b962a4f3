"""The zygote: an interpreter with its libraries loaded, from which cells are forked. Started by `handles.Zygote`.

    supervisor (the user's process)
      └── launcher        ends the zygote when the supervisor has ended
            └── zygote    first process of its pid namespace, read-only root, no network, one thread
                  └── cell, cell, cell ...   each in namespaces of its own

The zygote never reads a program, so no cell can find another's code in the memory that it was forked from.
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
from turnwise_sandbox.cell import MAX_FD, CellKind, CellPlan, rehearse, run_cell
from turnwise_sandbox.guest import endpoint as endpoint  # for programs that import it, whose root may not show it
from turnwise_sandbox.guest.program import flush_at_limits, install_entropy, open_streams, warm_up
from turnwise_sandbox.kernel import landlock, limits, overlay, root, seccomp, syscalls
from turnwise_sandbox.types import Network, TreeMethod

REAP_INTERVAL_MS = 1000
"""Interval at which ended cells are reaped if nothing else happens."""
SWEEP_INTERVAL_MS = 100
"""The interval if the zygote must also kill what ended cells left behind."""
FIRST_MAPPING = 400
"""Descriptors of mappings begin here, above all others, so that a cell closes them with one call."""
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
"""Modules that most programs import. Each shared library costs every fork some microseconds, so the list leaves out
modules that few programs use."""

PRELOADED: dict[str, tuple[str, ...]] = {
    "std": (),
    "numpy": ("numpy", "numpy.linalg"),
    # Nine shared libraries and OpenSSL: they slow down every fork, and take long to load in a program.
    "numpy_random": ("numpy", "numpy.linalg", "numpy.random"),
    "sympy": ("sympy",),
    "openai": ("openai", "httpx"),
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
"""Modules that a library loads in its first run; some versions lack some of them."""

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
    "openai": """
import contextlib, httpx, openai
called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
messages = [{"role": "assistant", "content": "a", "tool_calls": [called]}, {"role": "assistant", "content": "a"}]
choice = [{"index": 0, "finish_reason": "stop", "message": message} for message in messages]
answer = {"id": "a", "object": "chat.completion", "created": 0, "model": "m", "choices": choice}
transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer))
tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
with contextlib.suppress(Exception):  # another version of the client starts later, as if nothing were preloaded
    openai.OpenAI(api_key="k", base_url="http://127.0.0.1:1/v1")
    client = openai.OpenAI(api_key="k", base_url="http://m/v1", http_client=httpx.Client(transport=transport))
    for _ in range(9):
        reply = client.chat.completions.create(model="m", messages=[], tools=[tool])
        client.chat.completions.create(model="m", messages=[choice.message for choice in reply.choices], tools=[tool])
""",
    "pytest": """
import unittest
unittest.TestLoader().loadTestsFromTestCase(type("T", (unittest.TestCase,), {"test_a": lambda self: None}))
""",
}
"""Code that runs once per profile, so that what programs do first is loaded, compiled and cached before the first
fork."""


def main() -> NoReturn:
    """Become the launcher and fork the zygote."""
    config = json.loads(sys.argv[1])
    os.environ.pop("LD_BIND_NOW", None)  # programs that a cell starts do not need it
    control = socket.socket(fileno=config["control"])
    # A supervisor in the background of a script ignores SIGINT, but sandboxed code must react to it.
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
        os._exit(1)  # the launcher died before the parent-death signal was set
    os.close(launcher)
    os.close(supervisor)
    try:
        _Zygote(config, control, uid, gid).serve()
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()  # into the log that the supervisor quotes
            sys.stderr.flush()
        os._exit(1)


def _watch(supervisor: int, zygote: int, control: socket.socket) -> NoReturn:
    """Wait until the supervisor or the zygote ends, then kill the zygote. The kernel ends its descendants."""
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
    """The steps by which a forked process becomes the requested cell."""

    kind: CellKind
    network: Network
    namespaces: int
    """CLONE_NEW* bits."""
    mount: list[syscalls.Call]
    """Calls that mount its scratch folder and /proc; empty below level full."""
    give_up_privileges: list[syscalls.Call]
    """Calls that enter the scratch folder and drop all capabilities."""
    restrict: list[syscalls.Call]
    """Calls that apply Landlock (at level full), limits and seccomp."""
    plan: CellPlan
    tree: TreeMethod | None
    """How the cells get their tree; None if they have none."""
    scratch_bytes: int
    scratch_files: int


class _Zygote:
    """The zygote's process: its preparations for cells, and the living cells."""

    def __init__(self, config: dict[str, Any], control: socket.socket, uid: int, gid: int) -> None:
        self.control, self.control_fd = control, control.fileno()
        self.level: str = config["level"]
        self.user_namespace: bool = config["user_namespace"]
        self.landlock_abi: int = config["landlock_abi"]
        self.seccomp: bool = config["seccomp"]
        self.uid, self.gid = uid, gid
        if self.user_namespace:
            syscalls.enter_user_namespace(uid, gid)
        self.extra_paths: list[str] = config["extra_paths"]
        self.has_proc = self.level == "full" and root.build_root(extra_paths=self.extra_paths, store=config["store"])
        self.mappings: dict[int, int] = {}
        """User id of a cell to the descriptor of the mapping that makes it the owner of trees."""
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
        """Pids of the other cells, until they are reaped."""
        self.children = -1
        self.rulesets: dict[Network, int] = {}
        if self.level == "full":
            # Done once here instead of in every cell, where each step would cost page faults.
            os.environ.update(_folders(root.SCRATCH))
            syscalls.drop_bounding_set()
            if self.landlock_abi:
                self.rulesets = {network: self._build_ruleset(root.SCRATCH_PARENT, network) for network in self.filters}
        elif self.level != "uid" or os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            syscalls.set_child_subreaper()
            self.children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        syscalls.set_dumpable(False)

    def serve(self) -> None:
        """Fork a cell for each packet until the supervisor closes its end of the socket."""
        wire.send(self.control, {"ready": True})
        poll = self.poll
        poll.register(self.control, select.POLLIN)
        prepare = functools.lru_cache(maxsize=64)(self._prepare)
        # Every page that this loop touches causes a page fault, and mostly a copy, once per fork.
        while True:
            ready = dict(poll.poll(REAP_INTERVAL_MS if self.children == -1 else SWEEP_INTERVAL_MS))
            if self.once or self.cells or self.children != -1:
                self._reap()
            if self.control_fd not in ready:
                continue
            packet, fds = wire.receive_packet(self.control)
            if not packet:
                return
            uid = wire.UID.unpack_from(packet)[0]
            header, _, lowers = packet[wire.UID.size :].partition(wire.LOWERS)
            entry = prepare(header)
            try:
                if lowers and uid != wire.SAME_UID and uid not in self.mappings:
                    self.mappings[uid] = overlay.map_owner(uid, FIRST_MAPPING + len(self.mappings))
                pid, pidfd = syscalls.clone_process(entry.namespaces, pidfd=True)
            except OSError as error:
                wire.send(self.control, {"error": f"a process could not be started: {error.strerror}"})
                wire.close_all(fds)
                continue
            if pid == 0:
                self._become_cell(entry, uid, fds, lowers)
            wire.send_packet(self.control, CELL_MADE, [pidfd])
            if entry.kind == "once":
                self.once[pid] = pidfd, fds.pop(0)
                poll.register(pidfd, select.POLLIN)
            else:
                self.cells.add(pid)
                os.close(pidfd)
            wire.close_all(fds)

    def _report(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        """Report to the supervisor how a cell that was its own program ended."""
        pidfd, connection = self.once.pop(pid)
        self.poll.unregister(pidfd)
        cpu_s = usage.ru_utime + usage.ru_stime
        try:  # noqa: SIM105 - `contextlib.suppress` would touch more pages, each of which is copied
            os.write(connection, wire.REPORT.pack(status, wire.BY_ITSELF, 0.0, cpu_s, usage.ru_maxrss * 1024, False))
        except OSError:  # the supervisor has closed the cell
            pass
        os.close(pidfd)
        os.close(connection)

    def _reap(self) -> None:
        """Reap cells that ended, and report those that were their own program. Without pid namespaces also kill what an
        ended cell left, which has become a child of this process."""
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

    def _become_cell(self, entry: _Entry, uid: int, fds: list[int], lowers: bytes) -> NoReturn:
        connection = _socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fds[0])
        try:
            for fd in fds[3:]:
                os.write(fd, b"0")
            full = self.level == "full"
            plan = self._enter(entry, uid, lowers) if full else self._enter_beside_others(entry, uid)
            if entry.tree == "copy":
                plan = replace(plan, tree=os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            if entry.tree is not None:
                os.environ["HOME"] = os.environ["TMPDIR"]  # what programs leave at home is no change of the tree
        except OSError as error:
            wire.send(connection, {"error": f"{type(error).__name__}: {error}"})
            os._exit(1)
        if self.mappings:
            os.closerange(FIRST_MAPPING, MAX_FD)
        wire.close_all([*fds[3:], self.control_fd])
        run_cell(connection, fds[1], fds[2], plan, entry.kind)

    def _prepare(self, packet: bytes) -> _Entry:
        """The steps that a packet asks for. The calls are recorded here once for all cells, because each page that a
        fresh fork touches is copied."""
        header = json.loads(packet)
        full, network = self.level == "full", header["network"]
        has_overlay = header["tree"] == "overlay"
        scratch = root.SCRATCH if full else header["scratch"]
        namespaces = 0
        if full:
            namespaces = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
            if network == "loopback":
                namespaces |= syscalls.CLONE_NEWNET
            if self.user_namespace:
                namespaces |= syscalls.CLONE_NEWUSER

        def mount() -> None:
            if not has_overlay:
                root.mount_scratch(scratch, bytes=header["disk_bytes"], inodes=header["num_files"])
            if self.has_proc:
                root.mount_proc()

        def give_up_privileges() -> None:
            if full:
                root.make_folders(scratch, ("tmp",) if has_overlay else ("work", "tmp"))
                syscalls.syscall("chdir", os.fsencode(f"{scratch}/work"))
            syscalls.drop_privileges(bounding_set=False)
            if full:
                syscalls.set_pdeathsig()  # at other levels the cell must live to kill its programs
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
            tree=header["tree"],
            scratch_bytes=header["disk_bytes"],
            scratch_files=header["num_files"],
        )

    def _enter(self, entry: _Entry, uid: int, lowers: bytes) -> CellPlan:
        """Enter level full: namespaces, mounts, identity, Landlock, limits, seccomp, in this order, since each step
        forbids the earlier ones. `lowers` are the layers of an overlay; empty without one."""
        plan = entry.plan
        if self.user_namespace:
            syscalls.enter_user_namespace(self.uid, self.gid)
        if lowers:
            edits = overlay.mount_tree(
                plan.scratch,
                os.fsdecode(lowers),
                bytes=entry.scratch_bytes,
                inodes=entry.scratch_files,
                owner=(uid, self.mappings[uid]) if uid != wire.SAME_UID else None,
            )
            plan = replace(plan, tree=edits)
        syscalls.perform(entry.mount)
        if entry.namespaces & syscalls.CLONE_NEWNET:
            syscalls.bring_loopback_up()
        if uid != wire.SAME_UID:
            syscalls.set_identity(uid, uid)
        syscalls.perform(entry.give_up_privileges)
        syscalls.perform(entry.restrict)
        return plan

    def _enter_beside_others(self, entry: _Entry, uid: int) -> CellPlan:
        """Enter a lower level, where cells share the host's namespaces: folders instead of mounts, and Landlock rules
        that keep cells apart."""
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
        """A Landlock ruleset under which the interpreter is readable, and `writable` with all mounts below it
        writable."""
        read = ["/"] if self.level == "full" else [*root.interpreter_paths(), *self.extra_paths]
        return landlock.build_ruleset(
            read=read, read_write=[writable, "/dev/null"], abi=self.landlock_abi, network=network
        )


def _folders(scratch: str) -> dict[str, str]:
    return {"HOME": f"{scratch}/work", "PWD": f"{scratch}/work", "TMPDIR": f"{scratch}/tmp"}


def preload(profile: str) -> None:
    """Import the profile's libraries, run some of their code, then keep the memory away from the garbage collector and
    in huge pages, so that forks copy little of it.

    Raises ImportError for a library that is not installed, RuntimeError if a library left a thread running: a forked
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
    flush_at_limits()
    rehearse()
    gc.collect()
    gc.freeze()
    syscalls.collapse_heap()
