"""Reads how much memory this machine has: on a GPU, or for the CPU within the limits of the process's cgroups."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import torch


def read_memory_size(device: torch.device) -> int:
    """Return the bytes of memory on `device`, used or free, so that the answer is the same at every start."""
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        return int(total)
    return read_cpu_memory_size()


def read_cpu_memory_size(root: Path = Path("/")) -> int:
    """Return the bytes of main memory, or the lowest limit of this process's cgroups (version 1 or 2) if that is less.

    `root` is the folder with `proc` and `sys`. A file that cannot be read sets no limit.
    """
    sizes = _read_total(root / "proc" / "meminfo")
    for line in _read_lines(root / "proc" / "self" / "cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            mount, name = root / "sys" / "fs" / "cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys" / "fs" / "cgroup" / "memory", "memory.limit_in_bytes"
        else:
            continue
        # A limit applies to everything below it; a container sees its own cgroup as the top one.
        group = PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            sizes += [int(text) for text in _read_lines(mount / folder / name) if text.isdigit()]
    return min(sizes) if sizes else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_total(meminfo: Path) -> list[int]:
    """Return the bytes of `MemTotal`, which the kernel states in KiB."""
    return [int(line.split()[1]) * 1024 for line in _read_lines(meminfo) if line.startswith("MemTotal:")]


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
