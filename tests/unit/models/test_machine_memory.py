"""The memory of the machine is the least of its total and the limits of the cgroups above the process."""

from pathlib import Path

import pytest

from turnwise.models.machine_memory import read_cpu_memory_size

KIB = 1024


def write_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8000 * KIB),
        ({"proc/self/cgroup": "0::/\n"}, 8000 * KIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5000000\n"}, 5_000_000),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 8000 * KIB),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "6000000\n",
                "sys/fs/cgroup/a/memory.max": "4000000\n",  # a limit above holds too
            },
            4_000_000,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,memory:/c\n4:cpuset:/c\n",
                "sys/fs/cgroup/memory/c/memory.limit_in_bytes": "3000000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",  # version 1's "no limit"
            },
            3_000_000,
        ),
        # What the container calls /x is the top of what it sees.
        ({"proc/self/cgroup": "0::/x\n", "sys/fs/cgroup/memory.max": "2000000\n"}, 2_000_000),
    ],
)
def test_the_lowest_limit_counts(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    root = write_files(tmp_path, {"proc/meminfo": "MemFree: 5 kB\nMemTotal:        8000 kB\n", **files})
    assert read_cpu_memory_size(root) == expected


def test_this_machine_has_memory() -> None:
    assert 2**26 < read_cpu_memory_size() < 2**50
