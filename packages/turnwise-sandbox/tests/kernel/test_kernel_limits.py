import os
import resource
import time

from turnwise_sandbox.kernel import limits, syscalls


def under(attempt, **amounts):
    def run():
        limits.apply_rlimits(**amounts)
        return attempt()

    return run


def spin():
    while True:
        pass


def test_cpu_time_ends_a_loop(in_child):
    started = time.monotonic()
    assert in_child(under(spin, cpu_s=1)) == "signal 24"  # SIGXCPU
    assert time.monotonic() - started < 15


def test_cpu_time_ends_a_loop_that_ignores_the_warning(in_child):
    import signal

    def stubborn():
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        spin()

    assert in_child(under(stubborn, cpu_s=1)) == "signal 9"


def test_memory(in_child):
    def allocate():
        return len(bytearray(256 << 20))

    assert in_child(allocate) == 256 << 20
    assert in_child(under(allocate, data_bytes=128 << 20)).startswith("MemoryError")
    assert in_child(under(allocate, address_bytes=200 << 20)).startswith("MemoryError")


def test_file_size(in_child, tmp_path):
    def write():
        (tmp_path / "big").write_bytes(bytes(100_000))

    assert in_child(write) is None
    assert in_child(under(write, file_bytes=50_000)) == "EFBIG"


def test_descriptors(in_child):
    def open_many():
        return len([os.open("/", os.O_RDONLY) for _ in range(100)])

    assert in_child(open_many) == 100
    assert in_child(under(open_many, open_files=50)) == "EMFILE"


def test_processes_of_another_user(in_child, as_root):
    def fork_some():
        syscalls.set_identity(3_000_000_017, 3_000_000_017)
        pids = []
        try:
            for _ in range(20):
                pid = syscalls.clone_process()
                if pid == 0:
                    time.sleep(30)
                    os._exit(0)
                pids.append(pid)
        finally:
            for pid in pids:
                os.kill(pid, 9)
        return len(pids)

    assert in_child(fork_some) == 20
    assert in_child(under(fork_some, num_pids=8)) == "EAGAIN"


def test_limits_are_only_lowered(in_child):
    def twice():
        limits.apply_rlimits(open_files=100, num_pids=10)
        limits.apply_rlimits(open_files=5000, num_pids=None)
        return [
            resource.getrlimit(which) for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE)
        ]

    assert in_child(twice) == [[100, 100], [10, 10], [0, 0]]


def test_real_time_and_locked_memory_are_off(in_child, as_root):
    def lock():
        import mmap

        page = mmap.mmap(-1, 4096)
        page.madvise(mmap.MADV_WILLNEED)
        syscalls.syscall("mlockall", 1)

    def without_privilege(applied):
        def run():
            if applied:
                limits.apply_rlimits()
            syscalls.drop_privileges()
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

        return run

    def limited_lock():
        syscalls.drop_privileges()
        limits.apply_rlimits()
        lock()

    assert in_child(limited_lock) in ("EPERM", "ENOMEM")
    assert in_child(without_privilege(True)) == "EPERM"
