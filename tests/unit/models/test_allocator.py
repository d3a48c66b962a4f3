import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from turnwise.models.allocator import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "kept" else None
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        layer = [bytearray(8 << 20) for _ in range(int(sys.argv[2]) // 8)]
        del layer
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
call = ThreadPoolExecutor(1).submit
where = {"main": lambda: faults(), "thread": lambda: call(faults).result()}[sys.argv[3]]
where()
print(kept, where())
"""


def run(way: str, *, mib: int = 32, where: str = "main", **environment: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way, str(mib), where],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_temporaries_of_a_layer_are_not_faulted_in_again() -> None:
    # Ten times 32 MiB are 81,920 pages of 4 KiB, each a fault when the blocks went back to the kernel in between.
    assert run("plain")[1] > 40_000
    kept, faults = run("kept")
    assert kept == "True"
    assert faults < 1_000


def test_what_the_user_chose_stays() -> None:
    assert run("kept", MALLOC_MMAP_THRESHOLD_="131072")[0] == "False"
    assert run("kept", GLIBC_TUNABLES="glibc.malloc.trim_threshold=1048576")[0] == "False"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_temporaries_of_a_thread_are_not_faulted_in_again() -> None:
    # More than the 64 MiB of a thread's own heap: 10 * 128 MiB are 327,680 pages.
    kept, faults = run("kept", mib=128, where="thread")
    assert kept == "True"
    assert faults < 1_000
