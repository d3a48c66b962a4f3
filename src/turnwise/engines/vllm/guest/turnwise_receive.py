"""Receives weights over gloo, together with all other processes of the engine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]


def receive(
    manifest: Sequence[tuple[str, str, Sequence[int]]], host: str, port: int, size: int, deadline_s: float
) -> dict[str, torch.Tensor]:
    """Receive the tensors of a manifest of names, dtypes and shapes, in its order, from rank 0 of `size` ranks that
    meet at an address. Raises what torch raises when they do not meet, or one takes longer than `deadline_s`."""
    deadline = timedelta(seconds=deadline_s)
    store = TCPStore(host, port, is_master=False, timeout=deadline)
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = deadline
    options._devices = [gloo.create_device(hostname=find_own_address(host, port))]
    group = gloo(store, store.add("receivers", 1), size, options)
    tensors = {}
    for name, dtype, shape in manifest:
        tensors[name] = torch.empty(list(shape), dtype=getattr(torch, dtype.removeprefix("torch.")))
        group.broadcast(tensors[name], 0).wait()
    group.barrier().wait()
    return tensors


def find_own_address(host: str, port: int) -> str:
    """Return the address of this machine as the other side sees it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])
