import os
import subprocess
import sys
import time
from unittest.mock import patch

import pytest

from turnwise_sandbox.kernel import cgroups
from turnwise_sandbox.kernel.cgroups import CgroupPool


@pytest.fixture
def pool():
    pool = CgroupPool.probe()
    if pool is None:
        pytest.skip("this user can make no control group with memory and pids here")
    yield pool
    pool.close()


def inside(cgroup, attempt):
    def run():
        for fd in cgroup.attach_fds():
            os.write(fd, b"0")
        return attempt()

    return run


def test_memory_is_bounded_in_total(pool, in_child):
    def allocate():
        return len(bytearray(96 << 20))

    cgroup = pool.take(48 << 20, 32)
    assert in_child(allocate) == 96 << 20
    assert in_child(inside(cgroup, allocate)) == "signal 9"
    assert cgroup.events().num_oom_kills == 1
    cgroup.mark()
    assert cgroup.events() == (0, 0, cgroup.events().cpu_s)


def test_processes_are_bounded_and_none_survives(pool, in_child):
    cgroup = pool.take(256 << 20, 8)

    def fork_many():
        num_forks = 0
        try:
            for _ in range(30):
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(60)
                    os._exit(0)
                num_forks += 1
        except BlockingIOError:
            pass
        return num_forks

    assert in_child(inside(cgroup, fork_many)) == 7  # and the process itself
    assert cgroup.events().num_pids_refused >= 1
    assert len(cgroup.processes()) == 7
    cgroup.give_back()
    assert cgroup.processes() == []


def test_a_group_is_used_again_with_other_limits(pool, in_child):
    first = pool.take(32 << 20, 4)
    first.give_back()
    second = pool.take(256 << 20, 32)
    assert second is first
    assert in_child(inside(second, lambda: len(bytearray(96 << 20)))) == 96 << 20
    assert second.events().num_oom_kills == 0
    second.give_back()
    third = pool.take(32 << 20, 32)  # and lower again
    assert in_child(inside(third, lambda: len(bytearray(96 << 20)))) == "signal 9"


def test_joining_works_without_any_path(pool, in_child, as_root):
    cgroup = pool.take(64 << 20, 8)

    def join():
        os.chroot("/proc/self")
        for fd in cgroup.attach_fds():
            os.write(fd, b"0")
        time.sleep(30)

    def start():
        pid = os.fork()
        if pid == 0:
            join()
        deadline = time.monotonic() + 5
        while pid not in cgroup.processes() and time.monotonic() < deadline:
            time.sleep(0.01)
        return pid in cgroup.processes()

    assert in_child(start) is True
    assert cgroup.kill_all()


def test_what_a_dead_owner_left_is_swept(pool):
    code = (
        "import os, signal; from turnwise_sandbox.kernel.cgroups import CgroupPool; p = CgroupPool.probe(); g = "
        "p.take(1 << 26, 8)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    [os.write(fd, b'0') for fd in g.attach_fds()]; os.write(1, '\\n'.join([str(os.getpid()), "
        "*g._folders]).encode())\n"
        "    os.close(1); os.close(2); signal.pause()\n"
        "import time; time.sleep(0.3); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, text=True)
    orphan, *folders = done.stdout.split("\n")
    assert len(folders) == len(pool._layout.parents)
    kept = pool.take(64 << 20, 8)
    cgroups.sweep_stale(pool._layout.parents)
    assert kept.processes() == []  # the group of a living owner remains
    # Other sandboxes of this machine sweep as well, and one of them may not have finished.
    left = [f"/proc/{orphan}", *folders]
    deadline = time.monotonic() + 5
    while any(map(os.path.exists, left)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(os.path.exists, left))


def test_closing_leaves_no_group_and_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    pool = CgroupPool.probe()
    if pool is None:
        pytest.skip("this user can make no control group with memory and pids here")
    for cgroup in [pool.take(64 << 20, 8) for _ in range(3)]:
        cgroup.give_back()
    folders = [folder for cgroup in pool._all for folder in cgroup._folders]
    assert folders
    assert all(map(os.path.isdir, folders))
    pool.close()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert not any(map(os.path.exists, folders))


def test_a_process_in_one_hierarchy_only_does_not_hold_up_the_end():
    pool = CgroupPool.probe()
    if pool is None:
        pytest.skip("this user can make no control group with memory and pids here")
    cgroup = pool.take(64 << 20, 8)
    with subprocess.Popen(["sleep", "60"]) as process:
        with open(f"{cgroup._folders[0]}/cgroup.procs", "w") as file:
            file.write(str(process.pid))
        pool.close()
        assert process.wait(5) == -9
    assert not any(map(os.path.exists, cgroup._folders))


def test_version_two_files(tmp_path):
    """A plain folder replaces the version 2 file system, which few test machines have. Checks which files are written,
    and their content."""
    layout = cgroups._Layout(2, (str(tmp_path),))
    folder = tmp_path / "g"
    folder.mkdir()
    for name, text in {
        "cgroup.procs": "",
        "memory.max": "",
        "memory.swap.max": "",
        "pids.max": "",
        "memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\noom_group_kill 0\n",
        "pids.events": "max 4\n",
        "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
    }.items():
        (folder / name).write_text(text)
    folder.rename(tmp_path / "made")
    with patch.object(os, "mkdir", lambda path: os.rename(tmp_path / "made", path)):
        cgroup = cgroups.Cgroup(CgroupPool(layout), layout, "g")
    cgroup.set_limits(1000, 5)
    assert [(folder / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")] == ["1000", "0", "5"]
    (folder / "memory.events").write_text("oom_kill 5\n")
    (folder / "cpu.stat").write_text("usage_usec 2000000\n")
    assert cgroup.events() == (2, 0, 0.5)  # 5 - 3 kills, 2.0 - 1.5 seconds


def test_own_group_below_a_partial_mount():
    # A container sees /docker/abc of the hierarchy at the mount point: its own group /docker/abc/x is the folder x
    # there.
    assert cgroups._own_folder("/docker/abc/x", "/docker/abc", "/sys/fs/cgroup") == "/sys/fs/cgroup/x"
    assert cgroups._own_folder("/docker/abc", "/docker/abc", "/sys/fs/cgroup") == "/sys/fs/cgroup"
    assert cgroups._own_folder("/elsewhere", "/docker/abc", "/sys/fs/cgroup") == "/sys/fs/cgroup"
