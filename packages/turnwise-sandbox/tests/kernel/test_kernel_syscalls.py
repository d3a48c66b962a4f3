import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turnwise_sandbox.kernel import syscalls
from turnwise_sandbox.kernel.syscall_numbers import syscall_numbers


def test_numbers_of_both_machines():
    # From the kernel's tables: read is 0 and 63, clone 56 and 220, clone3 435 on both, fork exists on x86_64 only.
    x86_64, aarch64 = syscall_numbers("x86_64"), syscall_numbers("aarch64")
    assert (x86_64["read"], aarch64["read"]) == (0, 63)
    assert (x86_64["clone"], aarch64["clone"]) == (56, 220)
    assert x86_64["clone3"] == aarch64["clone3"] == 435
    assert "fork" in x86_64
    assert "fork" not in aarch64
    assert len(set(x86_64.values())) == len(x86_64)
    assert len(set(aarch64.values())) == len(aarch64)
    with pytest.raises(ValueError, match="riscv64"):
        syscall_numbers("riscv64")


def test_errors_name_the_call():
    with pytest.raises(OSError, match="setns") as caught:
        syscalls.setns(-1, 0)
    assert caught.value.errno == 9  # EBADF
    with pytest.raises(OSError, match="no_such_call"):
        syscalls.syscall("no_such_call")


def test_clone_is_a_fork_with_a_pidfd(in_child):
    def attempt():
        pid, pidfd = syscalls.clone_process(0, pidfd=True)
        if pid == 0:
            os._exit(9 if pidfd == -1 else 1)
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        assert result is not None
        return [result.si_pid == pid, result.si_status]

    assert in_child(attempt) == [True, 9]


def test_threads_work_in_a_clone(in_child):
    def attempt():
        import threading

        finished = []
        lock = threading.RLock()

        def append():
            with lock:
                finished.append(1)

        with lock:
            threads = [threading.Thread(target=append) for _ in range(3)]
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
        return len(finished)

    assert in_child(attempt) == 3


def test_a_pid_namespace_dies_with_its_first_process(in_child, as_root):
    reader, writer = os.pipe()

    def attempt():
        assert os.getpid() == 1
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
        return os.getppid()

    assert in_child(attempt, flags=syscalls.CLONE_NEWPID) == 0  # the parent is outside the pid namespace
    os.close(writer)
    assert os.read(reader, 1) == b""  # the daemon, which held the other end, has ended
    os.close(reader)


def test_a_child_dies_with_its_parent(in_child):
    reader, writer = os.pipe()

    def attempt():
        ready, told = os.pipe()
        if syscalls.clone_process() == 0:
            syscalls.set_pdeathsig(signal.SIGKILL)
            os.write(told, b"x")
            time.sleep(60)
        os.read(ready, 1)
        return None

    assert in_child(attempt) is None
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_privileges_are_gone_for_good(in_child, as_root, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0)

    def attempt():
        syscalls.drop_privileges()
        status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
        sets = {status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        after_exec = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
        return [
            sorted(sets),
            status["NoNewPrivs"].strip(),
            "CapEff:\t0000000000000000" in after_exec,
            os.access(secret, os.R_OK),
        ]

    assert in_child(attempt) == [["0" * 16], "1", True, False]
    assert in_child(lambda: secret.read_text()) == "x"


def test_identity_is_replaced_completely(in_child, as_root):
    def attempt():
        syscalls.set_identity(4001, 4002)
        return [os.getresuid(), os.getresgid(), os.getgroups()]

    assert in_child(attempt) == [[4001] * 3, [4002] * 3, []]

    def change_without_privileges():
        syscalls.drop_privileges()
        syscalls.set_identity(4001, 4002)

    assert in_child(change_without_privileges) == "EPERM"


def test_a_user_namespace_maps_one_user_to_itself(in_child):
    own_ids = os.geteuid(), os.getegid()

    def attempt():
        before = os.geteuid()
        syscalls.enter_user_namespace(*own_ids)
        return [before, os.geteuid(), os.getegid()]

    answer = in_child(attempt, flags=syscalls.CLONE_NEWUSER)
    if answer in ("EPERM", "EACCES"):
        pytest.skip(f"the host lets no user namespace be used: {answer}")
    assert answer == [65534, *own_ids]


def test_close_range_closes_the_rest(in_child):
    def attempt():
        keep = os.open("/dev/null", os.O_RDONLY)
        other = os.open("/dev/null", os.O_RDONLY)
        high = os.dup2(other, 900)
        closed = syscalls.close_range(other + 20)
        return [closed, os.fstat(keep).st_size, os.path.exists(f"/proc/self/fd/{high}")]

    assert in_child(attempt) == [True, 0, False]


def test_loopback_needs_to_be_brought_up(in_child, as_root):
    def connect(up):
        def attempt():
            if up:
                syscalls.bring_loopback_up()
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), timeout=2).close()

        return attempt

    assert in_child(connect(False), flags=syscalls.CLONE_NEWNET) in ("ENETUNREACH", "EADDRNOTAVAIL")
    assert in_child(connect(True), flags=syscalls.CLONE_NEWNET) is None


def test_heap_moves_into_huge_pages_and_keeps_its_content(in_child):
    def attempt():
        import mmap

        area = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pattern = bytes(range(256)) * 16
        for at in range(0, 8 << 20, 4096):
            area[at : at + 4096] = pattern
        collapsed = syscalls.collapse_heap()
        return [
            collapsed % (2 << 20),
            collapsed >= 0,
            all(area[at : at + 4096] == pattern for at in range(0, 8 << 20, 4096)),
        ]

    assert in_child(attempt) == [0, True, True]


def test_the_modules_import_quickly_and_without_heavy_libraries():
    names = ["syscalls", "seccomp", "landlock", "limits", "files", "root"]
    code = (
        "import sys\n"
        + "".join(f"import turnwise_sandbox.kernel.{name}\n" for name in names)
        + "heavy = {'numpy', 'asyncio', 'torch', 'dataclasses', 'inspect'}\n"
        + "sys.stdout.write(' '.join(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")
