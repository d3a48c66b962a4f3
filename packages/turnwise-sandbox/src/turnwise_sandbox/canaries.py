"""Attempts to break out, which run inside a level before any other program, against targets on the host.

Without isolation the attempt against each property succeeds, as the tests show. The result names each broken property
and what the attempt reached."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel.owner import own_tag
from turnwise_sandbox.types import Execution, Limits, Program

PROPERTIES = {
    "fs_read": "files of the host cannot be read",
    "fs_write": "no file outside the scratch folder can be written, made, renamed or removed",
    "fs_meta": "the permissions and times of files outside cannot be changed",
    "net": "no network of the host can be reached",
    "vsock": "the hypervisor's socket family is closed",
    "abstract_unix": "abstract sockets of the host cannot be reached",
    "unix_path": "sockets in the host's file system cannot be reached",
    "signals": "no process outside can be signalled",
    "ptrace": "no other process can be traced or read",
    "ipc": "no System V memory, queues or kernel keys outlive the program",
    "privileges": "no user or mount namespace, no device node, no new root",
    "pids": "the number of processes is bounded",
    "mem_proc": "the memory of one process is bounded",
    "mem_total": "the memory of all processes together is bounded",
    "cpu": "processor time is bounded",
    "disk_total": "all written files together are bounded",
    "kill_tree": "what the program started ends with it",
    "cross_exec": "a program finds nothing of the previous one",
}
"""Every property and its meaning."""

LIMITS = Limits(wall_s=10.0, memory_bytes=192 << 20, disk_bytes=4 << 20, num_files=256, num_pids=24)
"""Limits of the canaries: small, so that they are hit quickly."""

_ATTEMPTS = r"""
import ctypes, json, os, resource, signal, socket, sys, time
targets = json.loads(open("targets.json").read())
broken = {}

def attempt(name):
    def run(function):
        try:
            reached = function()
        except (OSError, MemoryError, AttributeError, ValueError):
            reached = None
        if reached:
            broken[name] = str(reached)[:200]
    return run

@attempt("fs_read")
def _():
    return open(targets["secret_path"]).read() == targets["secret"] and "read " + targets["secret_path"]

@attempt("fs_write")
def _():
    for path in (targets["secret_path"] + ".written", "/var/tmp/turnwise-canary", "/turnwise-canary"):
        try:
            open(path, "w").close()
        except OSError:
            continue
        try:
            os.unlink(path)
        except OSError:
            pass
        return "wrote " + path

@attempt("fs_meta")
def _():
    os.chmod(targets["secret_path"], 0o644)  # its present mode
    return "changed the mode of " + targets["secret_path"]

@attempt("net")
def _():
    with socket.create_connection(("127.0.0.1", targets["tcp_port"]), timeout=0.5):
        return "connected to TCP port %d" % targets["tcp_port"]

if "net" not in broken:
    @attempt("net")
    def _():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"canary", ("127.0.0.1", targets["udp_port"]))  # the host checks whether it arrives

@attempt("vsock")
def _():
    socket.socket(40, socket.SOCK_STREAM).close()
    return "AF_VSOCK socket"

@attempt("abstract_unix")
def _():
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(0.5)
        s.connect("\0" + targets["abstract"])
        return "connected"

@attempt("unix_path")
def _():
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(0.5)
        s.connect(targets["secret_path"] + ".socket")
        return "connected"

@attempt("signals")
def _():
    if targets["victim"] not in (os.getpid(), os.getppid()):  # in a pid namespace the number may be this process's
        os.kill(targets["victim"], signal.SIGTERM)  # the host checks whether it died

libc = ctypes.CDLL(None, use_errno=True)

@attempt("ptrace")
def _():
    return libc.ptrace(16, os.getppid(), 0, 0) == 0 and "attached to its parent"

@attempt("ipc")
def _():
    segment = libc.shmget(0x7457, 4096, 0o1666)
    if segment >= 0:
        libc.shmctl(segment, 0, 0)
        return "System V shared memory"

@attempt("privileges")
def _():
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.unshare(0x10000000) == 0 or libc.unshare(0x00020000) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0 and "a new namespace"

@attempt("disk_total")
def _():
    for index in range(2 * targets["disk_bytes"] >> 20):
        with open("fill%d" % index, "wb") as file:
            file.write(bytes(1 << 20))
    return "wrote twice the quota"

for index in range(64):
    if os.path.exists("fill%d" % index):
        os.unlink("fill%d" % index)

@attempt("mem_proc")
def _():
    return bytearray(8 * targets["memory_bytes"]) and "8 times the limit at once"

@attempt("cpu")
def _():
    return resource.getrlimit(resource.RLIMIT_CPU)[1] > 3600 and "no processor limit"

children = []
@attempt("pids")
def _():
    while len(children) < 3 * targets["num_pids"]:
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        children.append(child)
    return "%d processes" % len(children)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for standard in (1, 2):
            os.close(standard)
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect("\0" + targets["abstract_own"])
            except OSError:
                pass
            open("alive", "a").close()
            os.utime("alive")
            time.sleep(0.02)
    os._exit(0)
os.wait()
open("left-behind", "w").close()
open(os.environ["TMPDIR"] + "/left-behind", "w").close()
print(json.dumps(broken))
"""

_SECOND = r"""
import json, os, time
broken = {}
places = ("left-behind", os.environ["TMPDIR"] + "/left-behind", "/dev/shm/left-behind", "/tmp/left-behind")
left = [path for path in places if os.path.exists(path)]
if left:
    broken["cross_exec"] = "found " + left[0]
time.sleep(0.08)
if os.path.exists("alive"):
    broken["kill_tree"] = "a daemon of the previous program is still writing"
print(json.dumps(broken))
"""

_MEMORY = r"""
import os, signal
reader, writer = os.pipe()
children = set()
for _ in range(6):
    child = os.fork()
    if child == 0:
        held = bytearray(64 << 20)
        for at in range(0, len(held), 4096):
            held[at] = 1
        os.write(writer, b"x")
        signal.pause()
    children.add(child)
os.close(writer)
os.set_blocking(reader, False)
holding = dead = 0
while holding + dead < 6:
    child, _ = os.waitpid(-1, os.WNOHANG)
    dead += child != 0
    try:
        holding += len(os.read(reader, 6))
    except BlockingIOError:
        pass
print(holding)
"""


class HostView(Protocol):
    """Facts about the host that the canaries depend on."""

    @property
    def has_cgroups(self) -> bool:
        """Whether memory and processes are counted for a whole cell."""
        ...


Run = Callable[[Program, Limits], Awaitable[Execution]]


async def run_canaries(run: Run, host: HostView) -> dict[str, str]:
    """Broken property to what was reached. Raises SandboxError if the canaries themselves fail."""
    broken: dict[str, str] = {}
    with _targets() as (targets, udp, victim):
        files = {"targets.json": json.dumps(targets).encode()}
        for source in (_ATTEMPTS, _SECOND):
            execution = await run(Program(code=source, files=files, profile="std"), LIMITS)
            try:
                broken |= json.loads(execution.stdout)
            except ValueError:
                raise SandboxError(
                    f"the sandbox's start-up check failed to run: {execution.text()[-500:]} ({execution.limit})"
                ) from None
        with contextlib.suppress(BlockingIOError):
            udp.recv(16)
            broken["net"] = "a datagram reached the host"
        if victim.poll() is not None:
            broken["signals"] = f"terminated pid {victim.pid}"
    if host.has_cgroups:
        execution = await run(Program(code=_MEMORY, profile="std"), LIMITS)
        if execution.stdout.strip() == b"6":
            broken["mem_total"] = "6 processes of 64 MiB within a limit of 192 MiB"
    return broken


@contextlib.contextmanager
def _targets() -> Iterator[tuple[dict[str, Any], socket.socket, subprocess.Popen[bytes]]]:
    """Targets on the host that a program must not reach: a file, sockets and a process."""
    with contextlib.ExitStack() as stack:
        secret = secrets.token_hex(16)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"turnwise-sandbox-{own_tag()}-canary-"))
        os.chmod(folder, 0o777)  # so that only the sandbox prevents access
        path = os.path.join(folder, "secret")
        with open(path, "w") as file:
            file.write(secret)
        os.chmod(path, 0o644)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        abstract = f"turnwise-canary-{secrets.token_hex(8)}"
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind("\0" + abstract)
        listener.listen()
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(path + ".socket")
        os.chmod(path + ".socket", 0o777)
        named.listen()
        # The process's death is the evidence: inside, its number may belong to another process.
        victim = stack.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE))  # ends with this process
        stack.callback(victim.kill)
        targets = {
            "secret": secret,
            "secret_path": path,
            "tcp_port": tcp.getsockname()[1],
            "udp_port": udp.getsockname()[1],
            "abstract": abstract,
            "abstract_own": abstract + "-own",
            "victim": victim.pid,
            "disk_bytes": LIMITS.disk_bytes,
            "memory_bytes": LIMITS.memory_bytes,
            "num_pids": LIMITS.num_pids,
        }
        yield targets, udp, victim
