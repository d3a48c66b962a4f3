"""How ranks speak with one another: sums and agreements over torch.distributed, each with a deadline."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

START_S = 300.0
"""Longest time from the start of a process to its first word; imports are most of it."""


def join_group(folder: Path, index: int, size: int, *, deadline_s: float, device: torch.device) -> None:
    """Meet the other ranks in `folder`, a private one. gloo for tensors of the CPU, on the loopback interface; NCCL for
    those of a GPU."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(str(folder / "meeting"), size)  # type: ignore[attr-defined]
    store.set(f"here {index}", "yes")
    store.wait([f"here {other}" for other in range(size)], timedelta(seconds=START_S))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=index,
        world_size=size,
        timeout=timedelta(seconds=deadline_s),
    )


class JoinedRanks:
    """Implements `batching.ranks.Ranks` on the default process group."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        """`on_progress` is called whenever the ranks have met."""
        self.index, self.size = dist.get_rank(), dist.get_world_size()
        self._on_progress = on_progress

    def add(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Ranks.add`; integers of 64 bits are added modulo 2^64."""
        total = torch.from_numpy(np.array(numbers))
        dist.all_reduce(total)
        self._on_progress()
        return total.numpy()

    def agree(self, problem: str | None) -> str | None:
        """See `Ranks.agree`."""
        text = b"" if problem is None else problem.encode()
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.index] = len(text)
        dist.all_reduce(lengths)
        self._on_progress()
        if not bool(lengths.any()):
            return None
        first = int(lengths.nonzero()[0])
        content = torch.zeros(int(lengths[first]), dtype=torch.uint8)
        if first == self.index:
            content = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        dist.broadcast(content, first)
        return content.numpy().tobytes().decode()
