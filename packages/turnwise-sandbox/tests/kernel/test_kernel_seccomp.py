import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_sandbox.kernel import seccomp, syscalls
from turnwise_sandbox.kernel.syscall_numbers import syscall_numbers

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def restrict(network="none"):
    syscalls.set_no_new_privileges()
    seccomp.install_filter(seccomp.build_filter(network=network))


def simulate(program: bytes, arch: int, number: int, arguments=()) -> tuple[int, int]:
    """Interpret the filter as the kernel does. Returns the action and the number of instructions executed."""
    data = struct.pack("iIQ6Q", number, arch, 0, *arguments, *(0,) * (6 - len(arguments)))
    code = list(struct.iter_unpack("HBBI", program))
    at = value = steps = 0
    while True:
        op, on_true, on_false, k = code[at]
        at, steps = at + 1, steps + 1
        if op == 0x20:
            value = struct.unpack_from("I", data, k)[0]
        elif op == 0x54:
            value &= k
        elif op == 0x05:
            at += k
        elif op == 0x06:
            return k, steps
        else:
            at += on_true if {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[op] else on_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("network", ["none", "loopback"])
def test_every_call_number_gets_its_own_verdict(machine, network):
    numbers = syscall_numbers(machine)
    program = seccomp.build_filter(network=network, machine=machine)
    verdicts = seccomp.syscall_verdicts(numbers, network)
    for number in range(600):
        code = verdicts.get(number, ((0x06, 0, 0, ERRNO | 38),))  # unknown: ENOSYS
        alone = b"".join(struct.pack("HBBI", *row) for row in code)
        for arguments in ((0, 0, 0), (1, 1, 0), (2, 1, 6), (5, 0o020000, 0o060000)):
            assert (
                simulate(program, ARCH[machine], number, arguments)[0]
                == simulate(alone, ARCH[machine], number, arguments)[0]
            )


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_no_name_in_the_lists_is_misspelt(machine):
    # Every listed call exists on one of the two machines; a typing error would silently make a call unknown.
    names = set(syscall_numbers("x86_64")) | set(syscall_numbers("aarch64"))
    listed = f"{seccomp._ALLOWED} {seccomp._DENIED} {seccomp._NO_ATTRIBUTES} {seccomp._PRETENDED}".split()
    assert set(listed) <= names
    assert len(listed) == len(set(listed))


def test_a_common_call_costs_few_instructions():
    program = seccomp.build_filter(network="none", machine="x86_64")
    steps = {number: simulate(program, ARCH["x86_64"], number)[1] for number in range(460)}
    plain = {
        number for number, code in seccomp.syscall_verdicts(syscall_numbers("x86_64"), "none").items() if len(code) == 1
    }
    # 5 of prologue, a tree over some 130 runs (8 levels of one instruction, two where the jump is long), the return.
    assert max(steps[number] for number in plain) <= 5 + 8 + 3 + 1
    # The longest is ioctl: its argument is loaded and compared with all 20 allowed requests.
    assert max(steps, key=lambda number: steps[number]) == 16
    assert steps[16] <= 5 + 8 + 3 + 1 + 20 + 1


def test_another_entry_into_the_kernel_kills():
    program = seccomp.build_filter(network="none", machine="x86_64")
    assert simulate(program, 0x40000003, 20)[0] == KILL  # int 0x80, i386 getpid
    assert simulate(program, ARCH["aarch64"], 20)[0] == KILL
    assert simulate(program, ARCH["x86_64"], 0x40000000 | 39)[0] == KILL  # x32 getpid


@given(flags=st.integers(0, 2**64 - 1))
def test_clone_refuses_exactly_namespaces_and_tracing(flags):
    program = seccomp.build_filter(network="none", machine="x86_64")
    forbidden = 0x7E020000 | 0x2000  # CLONE_NEW* as one mask, CLONE_PTRACE
    expected = ERRNO | 1 if flags & forbidden else ALLOW
    assert simulate(program, ARCH["x86_64"], 56, (flags,))[0] == expected


@given(
    domain=st.integers(0, 50),
    kind=st.integers(0, 10),
    protocol=st.integers(0, 300),
    flags=st.sampled_from([0, 0o2000000, 0o4000]),
)
def test_sockets_are_local_unless_loopback(domain, kind, protocol, flags):
    arguments = (domain, kind | flags, protocol)
    none = simulate(seccomp.build_filter(network="none", machine="x86_64"), ARCH["x86_64"], 41, arguments)[0]
    assert (none == ALLOW) == (domain == 1)
    loopback = simulate(seccomp.build_filter(network="loopback", machine="x86_64"), ARCH["x86_64"], 41, arguments)[0]
    assert (loopback == ALLOW) == (domain == 1 or (domain in (2, 10) and kind in (1, 2) and protocol in (0, 6, 17)))


def test_an_unknown_machine_is_refused():
    with pytest.raises(ValueError, match="riscv64"):
        seccomp.build_filter(network="none", machine="riscv64")


def call(name, *arguments):
    return lambda: min(syscalls.syscall(name, *arguments), 0)


PARENT = os.getpid()
STOPPED = {
    "tcp": (lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(), "EAFNOSUPPORT"),
    "udp6": (lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close(), "EAFNOSUPPORT"),
    "netlink": (lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(), "EAFNOSUPPORT"),
    "unshare": (lambda: syscalls.unshare(syscalls.CLONE_NEWUTS), "EPERM"),
    "user namespace": (lambda: syscalls.unshare(syscalls.CLONE_NEWUSER), "EPERM"),
    "chroot": (lambda: os.chroot("/"), "EPERM"),
    "ptrace": (call("ptrace", 0), "EPERM"),
    "pidfd of the parent": (lambda: os.close(os.pidfd_open(PARENT)), "EPERM"),
    "limits of the parent": (call("prlimit64", PARENT, 0, None, bytes(16)), "EPERM"),
    "nice of the parent": (
        lambda: os.setpriority(os.PRIO_PROCESS, PARENT, os.getpriority(os.PRIO_PROCESS, PARENT)),
        "EPERM",
    ),
    "processors of the parent": (lambda: os.sched_setaffinity(PARENT, os.sched_getaffinity(PARENT)), "EPERM"),
    "memory of the parent": (call("process_vm_readv", PARENT, bytes(16), 0, bytes(16), 0), "EPERM"),
    "compare with the parent": (call("kcmp", PARENT, PARENT, 1, 0, 0), "EPERM"),
    "shared memory": (
        lambda: syscalls.syscall("msgctl", syscalls.syscall("msgget", 0, 0o600 | 0o1000), 0, None),
        "EPERM",
    ),
    "keyring": (call("keyctl", 0, -1, 1), "EPERM"),
    "personality": (call("personality", 0xFFFFFFFF), "EPERM"),
    "file handles": (call("name_to_handle_at", -100, b"/\0", struct.pack("Ii128x", 128, 0), bytes(8), 0), "EPERM"),
    "userfaultfd": (lambda: os.close(syscalls.syscall("userfaultfd", 0)), "EPERM"),
    "io_uring": (lambda: os.close(syscalls.syscall("io_uring_setup", 4, ctypes.create_string_buffer(120))), "ENOSYS"),
    "memory file": (lambda: os.close(os.memfd_create("x")), "ENOSYS"),
    "death signal off": (lambda: syscalls.set_pdeathsig(0), "EPERM"),
    "another filter": (lambda: seccomp.install_filter(struct.pack("HBBI", 0x06, 0, 0, ALLOW)), "EPERM"),
}


@pytest.mark.parametrize("name", STOPPED)
def test_a_call_is_stopped_and_works_without_the_filter(in_child, as_root, name):
    attempt, code = STOPPED[name]

    def restricted():
        restrict()
        return attempt()

    def unrestricted():
        syscalls.set_no_new_privileges()
        return attempt()

    without = in_child(unrestricted)
    if without in ("ENOSYS", "EAFNOSUPPORT", "EOPNOTSUPP"):
        pytest.skip(f"this kernel lacks {name}: {without} without the filter too")
    assert without in (None, 0)
    assert in_child(restricted) == code


def test_devices_and_attributes(in_child, as_root, tmp_path):
    def set_attribute(path):
        open(path, "w").close()
        os.setxattr(path, "user.x", b"1")

    def attempts():
        outcomes: list[int | None] = []
        for number, attempt in enumerate(
            (
                lambda path: os.mknod(path, 0o020600, os.makedev(1, 3)),
                lambda path: os.mkfifo(path),
                set_attribute,
            )
        ):
            try:
                attempt(str(tmp_path / f"{os.getpid()}-{number}"))
                outcomes.append(None)
            except OSError as error:
                outcomes.append(error.errno)
        return outcomes

    free, stopped = in_child(attempts), in_child(lambda: restrict() or attempts())
    if free[2] == 95:
        pytest.skip("the temporary folder's file system has no extended attributes")
    assert free == [None, None, None]
    assert stopped == [1, None, 95]  # EPERM for the device, a FIFO is fine, EOPNOTSUPP for the attribute


def test_typing_into_a_terminal_is_refused(in_child, as_root):
    import fcntl
    import pty

    def attempt():
        slave = pty.openpty()[1]
        fcntl.ioctl(slave, 0x5412, b"x")  # TIOCSTI
        return None

    if in_child(attempt) is not None:
        pytest.skip("this kernel refuses TIOCSTI to everybody")

    def restricted():
        slave = pty.openpty()[1]
        restrict()
        fcntl.ioctl(slave, 0x5401, bytes(64))  # TCGETS still works: isatty
        fcntl.ioctl(slave, 0x5412, b"x")

    assert in_child(restricted) == "ENOTTY"


def test_x32_entry_kills_the_process(in_child):
    if os.uname().machine != "x86_64":
        pytest.skip("x32 is an x86_64 entry")
    syscalls.NUMBERS["x32_getpid"] = 0x40000000 | 39
    try:
        assert in_child(lambda: min(syscalls.syscall("x32_getpid"), 1)) in ("ENOSYS", 1)
        assert in_child(lambda: restrict() or syscalls.syscall("x32_getpid")) == "signal 31"
    finally:
        del syscalls.NUMBERS["x32_getpid"]


def test_its_own_limits_and_parent_death_stay_possible(in_child):
    def own():
        import resource

        restrict()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(1)
        os.sched_setaffinity(0, os.sched_getaffinity(0))
        syscalls.set_pdeathsig(9)
        syscalls.set_dumpable(False)
        os.sync()
        pid, pidfd = syscalls.clone_process(0, pidfd=True)
        if pid == 0:
            signal.pause()
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)  # to a child it was given a descriptor of
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert in_child(own) == -15


def test_a_filter_needs_no_new_privileges(in_child):
    def bare():
        if os.geteuid() == 0:
            syscalls.drop_all_capabilities()
        seccomp.install_filter(seccomp.build_filter(network="none"))

    assert in_child(bare) == "EACCES"


PROGRAMS = {
    "numpy": [
        sys.executable,
        "-c",
        "import numpy as n; assert abs(n.linalg.inv(2 * n.eye(3))[0, 0] - 0.5) < 1e-9; n.random.rand()",
    ],
    "threads": [sys.executable, "-c", "import threading as t; x = t.Thread(target=print); x.start(); x.join()"],
    # A pool that is not closed may hang at the interpreter's end, with or without a filter.
    "processes": [
        sys.executable,
        "-c",
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: assert p.map(abs, [-1]) == [1]",
    ],
    "subprocess": [
        sys.executable,
        "-c",
        "import subprocess as s; assert s.run('echo hi | cat', shell=True, capture_output=True).stdout",
    ],
    "asyncio": [sys.executable, "-c", "import asyncio as a; p = a.run(a.create_subprocess_exec('true')); assert p"],
    "bash": [
        "bash",
        "-c",
        "set -e; x=$(seq 3 | wc -l); [ $x = 3 ]; f=$(mktemp -d); cp /etc/hostname $f/a; mv $f/a $f/b; rm -r $f; cat "
        "<(echo)",
    ],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ordinary_programs_run_under_the_filter(in_child, name):
    def run():
        restrict()
        done = subprocess.run(PROGRAMS[name], capture_output=True, text=True, timeout=60)
        return [done.returncode, done.stderr]

    assert in_child(run, timeout_s=60) == [0, ""]


def test_the_c_compiler_runs_under_the_filter(in_child, tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    (tmp_path / "a.c").write_text("int main(void) { return 42; }")

    def run():
        restrict()
        subprocess.run(["gcc", "-o", tmp_path / "a", tmp_path / "a.c"], check=True, timeout=120)
        return subprocess.run([tmp_path / "a"], timeout=120).returncode

    assert in_child(run, timeout_s=150) == 42


def test_loopback_profile_talks_to_itself(in_child, as_root):
    def talk():
        syscalls.bring_loopback_up()
        restrict("loopback")
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5) as client,
        ):
            client.sendall(b"x")
            return server.accept()[0].recv(1).decode()

    assert in_child(talk, flags=syscalls.CLONE_NEWNET) == "x"

    def open_raw():
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()

    def open_raw_restricted():
        restrict("loopback")
        open_raw()

    assert in_child(open_raw_restricted) == "EPERM"
    assert in_child(open_raw) is None
