"""Weights sent to all processes of an engine at once, over gloo.

A new group is formed for each version, because processes start and end between versions. This process is rank 0; the
others are numbered in the order in which they join. Only the bytes of tensors are sent: every process knows their
names, dtypes and shapes beforehand, and answers with checksums of what it received."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from turnwise.core.errors import EngineError, boundary
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.pool import WorkerPool
from turnwise.hosts.local import LOOPBACK

DEADLINE_S = 120.0
"""Most seconds until all processes have met, and for each tensor."""
ANY_PORT = 9
"""A port to which nothing is sent: connecting only asks the kernel for a route."""


async def broadcast_weights(
    pool: WorkerPool, tensors: Mapping[str, torch.Tensor], *, label: str, deadline_s: float
) -> list[tuple[Link, Any]]:
    """Send tensors to every running process, which holds them under a label and loads nothing. Returns the checksums
    that each answers with.

    If a process ends meanwhile, the group breaks and all tensors are sent again. Raises EngineError if a process fails
    but keeps running.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    while links := pool.open_links():
        try:
            return await _broadcast_once(links, plain, label, deadline_s)
        except EngineError:
            if all(link.is_open for link in links):
                raise
    return []


async def _broadcast_once(
    links: Sequence[Link], tensors: Mapping[str, torch.Tensor], label: str, deadline_s: float
) -> list[tuple[Link, Any]]:
    address = find_own_address({link.address for link in links})
    with boundary(
        EngineError, f"cannot listen at {address}, the address at which the engine's processes reach this one"
    ):
        listener = socket.create_server((address, 0))
    fields = {
        "label": label,
        "manifest": [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()],
        "host": address,
        "port": listener.getsockname()[1],
        "size": len(links) + 1,
        "deadline_s": deadline_s,
    }
    sending = asyncio.to_thread(_send, listener, tensors, len(links) + 1, timedelta(seconds=deadline_s))
    # Exactly these: a process that becomes ready meanwhile is not counted in the size of the group.
    asked = [link.ask("receive", **fields) for link in links]
    sent, *answers = await asyncio.gather(sending, *asked, return_exceptions=True)
    # A process's own error is more informative than the failed transfer.
    for outcome in (*answers, sent):
        if isinstance(outcome, BaseException):
            raise outcome
    return list(zip(links, answers, strict=True))


def find_own_address(others: set[str]) -> str:
    """Return the address at which the others reach this machine; loopback if they are all on it."""
    outside = sorted(others - {LOOPBACK})
    if not outside:
        return LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((outside[0], ANY_PORT))
        return str(probe.getsockname()[0])


def _send(listener: socket.socket, tensors: Mapping[str, torch.Tensor], size: int, deadline: timedelta) -> None:
    host, port = listener.getsockname()
    with boundary(
        EngineError, f"the weights did not reach all {size - 1} processes within {deadline.total_seconds():g} s"
    ):
        store = TCPStore(
            host, port, is_master=True, wait_for_workers=False, timeout=deadline, master_listen_fd=listener.detach()
        )
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = deadline
        options._devices = [gloo.create_device(hostname=host)]
        group = gloo(store, 0, size, options)
        for tensor in tensors.values():
            group.broadcast(tensor, 0).wait()
        # The store closes when this function returns: wait until every process is done with it.
        group.barrier().wait()
