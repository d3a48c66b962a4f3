"""A process that imitates a world (a container, a restricted user, a kernel without a feature) and runs probes in it.

`python escape_world.py` reads a request as JSON and answers with JSON. If it has the privileges, it first enters new
pid, mount and IPC namespaces and a new session keyring, so that a probe that kills every process it can reach harms
nothing on this machine, and no message queue or key is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from escape_probes import BY_NAME, Probe

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel import seccomp, syscalls
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Limits, Program

LIMITS = Limits(wall_s=6.0, memory_bytes=128 << 20, disk_bytes=4 << 20, num_files=128, num_pids=20)
NAMESPACE_CALLS = "unshare mount umount2 pivot_root setns open_tree move_mount fsopen fsmount mount_setattr"
NAMESPACE_FLAGS = 0x7E020000
DOCKER_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
"""chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot mknod audit_write
setfcap."""

# --------------------------------------------------------------------------------------------- worlds


def refuse(names: str, error: int, *, namespaces: bool) -> None:
    """Make system calls fail with an errno, as a container runtime's filter does; with `namespaces` also a clone with
    any namespace flag."""
    code: list[tuple[int, int, int, int]] = [(0x20, 0, 0, 0)]
    for name in names.split():
        code += [(0x15, 0, 1, syscalls.NUMBERS[name]), (0x06, 0, 0, 0x50000 | error)]
    if namespaces:
        code += [(0x15, 0, 1, syscalls.NUMBERS["clone3"]), (0x06, 0, 0, 0x50000 | 38)]
        code += [
            (0x15, 0, 3, syscalls.NUMBERS["clone"]),
            (0x20, 0, 0, 16),
            (0x45, 0, 1, NAMESPACE_FLAGS),
            (0x06, 0, 0, 0x50001),
        ]
    code.append((0x06, 0, 0, 0x7FFF0000))
    seccomp.install_filter(b"".join(struct.pack("HBBI", *row) for row in code))


def keep_capabilities(kept: tuple[int, ...]) -> None:
    """Drop all other capabilities."""
    for capability in range(64):
        if capability not in kept:
            with contextlib.suppress(OSError):
                syscalls.syscall("prctl", 24, capability)
    mask = sum(1 << capability for capability in kept)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    syscalls.syscall("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", low, low, 0, high, high, 0))


def enter(world: str) -> None:
    """Enter a world: root, setfcap, no_caps, user, docker, restricted, userns_off, no_landlock or nothing."""
    if world == "user":
        syscalls.set_identity(65534, 65534)
    elif world == "setfcap":  # the capability with which user id 0 maps itself into a user namespace
        keep_capabilities((31,))
    elif world == "no_caps":
        syscalls.drop_privileges()
    elif world == "docker":
        refuse(NAMESPACE_CALLS, 1, namespaces=True)
        keep_capabilities(DOCKER_CAPABILITIES)
    elif world == "restricted":
        syscalls.drop_privileges()
        refuse(NAMESPACE_CALLS, 1, namespaces=True)
    elif world == "userns_off":
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        syscalls.enter_user_namespace(uid, gid)
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
        syscalls.drop_privileges()
    elif world in ("no_landlock", "nothing"):
        syscalls.drop_privileges()
        refuse(NAMESPACE_CALLS, 1, namespaces=True)
        refuse("landlock_create_ruleset landlock_add_rule landlock_restrict_self", 38, namespaces=False)
        if world == "nothing":
            refuse("seccomp", 38, namespaces=False)
            code = [
                (0x20, 0, 0, 0),
                (0x15, 0, 3, syscalls.NUMBERS["prctl"]),
                (0x20, 0, 0, 16),
                (0x15, 0, 1, 22),
                (0x06, 0, 0, 0x50016),
            ]
            # Refuse prctl(PR_SET_SECCOMP) too, the other way to install a filter. No filter can follow this one.
            program = b"".join(struct.pack("HBBI", *row) for row in [*code, (0x06, 0, 0, 0x7FFF0000)])
            memory = ctypes.create_string_buffer(program, len(program))
            request = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(memory))
            syscalls.syscall("prctl", 22, 2, request)
    elif world != "root":
        raise ValueError(world)


def enter_own_namespaces(*, cgroups: bool) -> None:
    """Continue as a child in new pid, mount and IPC namespaces, below a first process that only reaps."""
    answer = syscalls.clone_process(syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC)
    if answer:
        _, status = os.waitpid(answer, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    syscalls.set_pdeathsig()
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc")
    if not cgroups:
        syscalls.mount("none", "/sys/fs/cgroup", "tmpfs")
    child = os.fork()
    if child:
        while True:
            pid, status = os.wait()
            if pid == child:
                os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


# --------------------------------------------------------------------------------------------- targets


class Targets:
    """Targets on the host that a program must not reach: files, sockets and a process."""

    def __init__(self, stack: contextlib.ExitStack, request: dict[str, Any]) -> None:
        self.key = os.environ["TURNWISE_CANARY_KEY"]
        self.token = f"turnwise-probe-{secrets.token_hex(8)}"
        self.secret = secrets.token_hex(16)
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-host-", dir=request.get("folder")))
        os.chmod(self.folder, 0o777)
        self.udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setblocking(False)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        tcp6 = None
        with contextlib.suppress(OSError):
            tcp6 = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        listener, datagrams, named = (
            stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM)
        )
        listener.bind("\0" + self.token)
        listener.listen()
        datagrams.bind(f"\0{self.token}-datagram")
        named.bind(f"{self.folder}/socket")
        os.chmod(f"{self.folder}/socket", 0o777)
        named.listen()
        self.victim: subprocess.Popen[bytes] | None = None
        disks = [
            f"/dev/{name}"
            for name in (os.listdir("/sys/block") if os.path.isdir("/sys/block") else [])
            if os.path.exists(f"/dev/{name}")
        ]
        self.values = {
            "secret": self.secret,
            "folder": self.folder,
            "secret_path": f"{self.folder}/secret",
            "writable": f"{self.folder}/writable",
            "deletable": f"{self.folder}/deletable",
            "owned": f"{self.folder}/owned",
            "key": self.key,
            "token": self.token,
            "abstract": self.token,
            "tcp": tcp.getsockname()[1],
            "tcp6": tcp6.getsockname()[1] if tcp6 else 0,
            "udp": self.udp.getsockname()[1],
            "disk": disks[0] if disks else "",
            "x86_64": os.uname().machine == "x86_64",
            "ipc_key": 0x54570000 | secrets.randbelow(1 << 16),
            "numbers": {**syscalls.NUMBERS, "nothing": 99999},
            "disk_bytes": LIMITS.disk_bytes,
            "memory_bytes": LIMITS.memory_bytes,
            "num_pids": LIMITS.num_pids,
            "num_files": LIMITS.num_files,
        }

    def renew(self) -> None:
        """Restore the files and the process that the last probe may have harmed."""
        for name in ("secret", "writable", "deletable", "owned"):
            path = Path(self.folder, name)
            path.unlink(missing_ok=True)
            path.write_text(self.secret)
            path.chmod(0o644 if name in ("secret", "owned") else 0o666)
        if self.victim is None or self.victim.poll() is not None:
            self.victim = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
            self.values["victim"] = self.victim.pid

    def read_effects(self) -> str | None:
        """The effects of a probe on the host, which are then removed; None without any."""
        effects = []
        with contextlib.suppress(BlockingIOError):
            while True:
                self.udp.recv(64)
                effects.append("a datagram arrived")
        for folder in ("/tmp", "/dev/shm", self.folder):
            for path in Path(folder).glob(f"{self.token}*"):
                path.unlink()
                if not path.name.endswith("-left"):  # a probe looks for those itself
                    effects.append(f"{path} was there")
        assert self.victim is not None
        if self.victim.poll() is not None:
            effects.append("the victim is dead")
        if pids := _named("tw-daemon"):
            effects.append("a daemon is still alive")
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return "; ".join(dict.fromkeys(effects)) or None


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]


def _named(name: str) -> list[int]:
    """Pids of the living processes with that name."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == name and _state(int(pid)) != "Z":
                pids.append(int(pid))
        except OSError:
            continue
    return pids


# --------------------------------------------------------------------------------------------- running


async def run_probes(request: dict[str, Any], targets: Targets) -> dict[str, Any]:
    """Run every requested probe in a LocalSandbox at the requested level."""
    try:
        sandbox = LocalSandbox(
            num_slots=1, level=request["level"], allow_unsafe=request["level"] == "none", mode=request["mode"]
        )
        level = await sandbox.level()
    except SandboxError as error:
        return {"error": str(error)}
    claims = {name: item.enforced_by for name, item in level.properties.items() if item.enforced_by and item.verified}
    results = {}
    for name in request["probes"]:
        probe = BY_NAME[name]
        if probe.needs and not targets.values[probe.needs]:
            results[name] = {"skipped": f"this machine has no {probe.needs}"}
            continue
        if probe.violent and probe.property not in claims:
            results[name] = {"skipped": "not claimed, and too violent to try"}
            continue
        targets.renew()
        results[name] = await _run_probe(sandbox, probe, targets)
    await sandbox.close()
    return {"level": level.name, "claims": claims, "reasons": dict(level.reasons), "results": results}


async def _run_probe(sandbox: LocalSandbox, probe: Probe, targets: Targets) -> dict[str, Any]:
    files = {"targets.json": json.dumps(targets.values).encode()}
    try:
        if probe.before:
            await sandbox.run(Program(code=probe.before, files=files, profile="std"), LIMITS)
        program = Program(code=probe.code, files=files, profile="std", outputs=("hard", "soft", "folder/deep"))
        execution = await sandbox.run(program, LIMITS)
    except SandboxError as error:
        return {"escaped": f"the sandbox failed: {error}", "text": ""}
    text = execution.text()
    escaped = next((line for line in text.splitlines() if line.startswith("ESCAPED")), None) or targets.read_effects()
    if any(targets.secret.encode() in content for content in execution.files.values()):
        escaped = "the secret came back as an output file"
    return {"escaped": escaped, "text": text[-300:], "limit": execution.limit, "signal": execution.signal}


def run_bare(request: dict[str, Any], targets: Targets) -> dict[str, Any]:
    """Run every requested probe as a plain subprocess, without isolation."""
    results: dict[str, dict[str, str | None]] = {}
    for name in request["probes"]:
        probe = BY_NAME[name]
        if probe.needs and not targets.values[probe.needs]:
            results[name] = {"skipped": f"this machine has no {probe.needs}"}
            continue
        targets.renew()
        with tempfile.TemporaryDirectory(prefix=targets.token[:20]) as folder:
            Path(folder, "work").mkdir()
            Path(folder, "tmp").mkdir()
            Path(folder, "work/targets.json").write_text(json.dumps(targets.values))
            options: dict[str, Any] = {
                "cwd": f"{folder}/work",
                "env": {**os.environ, "TMPDIR": f"{folder}/tmp"},
                "capture_output": True,
            }
            command = [sys.executable, "-I", "-S"]
            if probe.before:
                subprocess.run([*command, "-c", probe.before], timeout=20, check=False, **options)
            # A shell takes the place of the cell: the probe may kill or stop it.
            shell = subprocess.Popen(
                ["sh", "-c", '"$@" > output 2>&1; echo alive >> output', "sh", *command, "-c", probe.code],
                start_new_session=True,
                preexec_fn=lambda: syscalls.unshare(syscalls.CLONE_NEWNS),  # so that a mount ends with it
                **{key: value for key, value in options.items() if key != "capture_output"},
            )
            ends = time.monotonic() + 6
            while time.monotonic() < ends and shell.poll() is None and _state(shell.pid) != "T":
                time.sleep(0.005)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            text = Path(folder, "work/output").read_text(errors="replace")
        escaped = (
            next((line for line in text.splitlines() if line.startswith("ESCAPED")), None) or targets.read_effects()
        )
        if escaped is None and "alive" not in text and "limit" not in text:
            escaped = "its parent was killed or stopped"
        results[name] = {"escaped": escaped, "text": text[-300:]}
    return {"level": "bare", "claims": {}, "results": results}


@contextlib.contextmanager
def _quiet_exit() -> Iterator[None]:
    yield
    sys.stdout.flush()


def main() -> None:
    request = json.loads(sys.stdin.read())
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # so that this process survives `kill_all`
    if os.geteuid() == 0 and request["namespaces"]:
        enter_own_namespaces(cgroups=request["cgroups"])
    with contextlib.suppress(OSError):  # a kernel without keys
        syscalls.syscall("keyctl", 1, None)
    with contextlib.ExitStack() as stack, _quiet_exit():
        if request["world"] == "user":
            enter("user")
        targets = Targets(stack, request)
        targets.renew()
        if request["world"] != "user":
            enter(request["world"])
        answer = run_bare(request, targets) if request["level"] == "bare" else asyncio.run(run_probes(request, targets))
        assert targets.victim is not None
        targets.victim.kill()
        sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
