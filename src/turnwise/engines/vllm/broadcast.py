"""Weights sent to all processes of an engine at once, over gloo.

The group is made anew for each version, because processes come and go between versions. This process is rank 0; the
others take their numbers in the order in which they come. Nothing travels but the bytes of tensors, whose names, dtypes
and shapes every process was told before; what it got is proved by the sums it answers with."""

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
"""Most seconds until all processes have met, and of each tensor."""
ANY_PORT = 9
"""Where nothing is sent: connecting there only asks the kernel for a way."""


async def broadcast_weights(
    pool: WorkerPool, tensors: Mapping[str, torch.Tensor], *, label: str, deadline_s: float
) -> list[tuple[Link, Any]]:
    """Send tensors to every process that runs, which holds them under a label and loads nothing; the sums that each
    answers with.

    One that ends meanwhile takes the others with it out of the group; then they are sent all anew. Raises EngineError
    when one fails and goes on.
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
    with boundary(EngineError, f"nothing can listen at {address}, by which the engine's processes reach this one"):
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
    # These and no other: a process that is ready meanwhile is not counted in the size of the group.
    asked = [link.ask("receive", **fields) for link in links]
    sent, *answers = await asyncio.gather(sending, *asked, return_exceptions=True)
    # What a process says of itself is worth more than that the weights did not arrive.
    for outcome in (*answers, sent):
        if isinstance(outcome, BaseException):
            raise outcome
    return list(zip(links, answers, strict=True))


def find_own_address(others: set[str]) -> str:
    """The address by which this machine is reached from these; loopback where they are all here."""
    outside = sorted(others - {LOOPBACK})
    if not outside:
        return LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((outside[0], ANY_PORT))
        return str(probe.getsockname()[0])


def _send(listener: socket.socket, tensors: Mapping[str, torch.Tensor], size: int, deadline: timedelta) -> None:
    host, port = listener.getsockname()
    with boundary(EngineError, f"the weights did not reach all {size - 1} processes in {deadline.total_seconds():g} s"):
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
        # The store closes when this returns: wait until every process is done with it.
        group.barrier().wait()
