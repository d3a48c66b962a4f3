"""Communication between ranks: sums and agreements over torch.distributed, each with a deadline."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from turnwise.core.errors import TrainingError

START_S = 300.0
"""Longest time in seconds from the start of a process to its first message; imports take most of it."""
_SIOCGIFADDR = 0x8915
"""Linux ioctl that returns the IPv4 address of an interface."""


def listen(address: str) -> socket.socket:
    """Open a listening socket on a free port of this address only, for `host_store`. Raises TrainingError."""
    try:
        return socket.create_server((address, 0))
    except OSError as cause:
        raise TrainingError(
            f"cannot listen at {address}, the address at which the ranks on other nodes look for it"
        ) from cause


def host_store(listener: socket.socket) -> Store:
    """Return the store where ranks meet, in the process of the first one."""
    host, port = listener.getsockname()
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def join_store(address: str, port: int) -> Store:
    """Return the store where ranks meet, for all other ranks."""
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=START_S))


def join_group(
    store: Store,
    index: int,
    size: int,
    *,
    deadline_s: float,
    device: torch.device,
    address: str = "127.0.0.1",
) -> None:
    """Join the other ranks from `address` of this machine, using only the interface with that address: gloo for CPU
    tensors, NCCL for GPU tensors. Raises TrainingError if no interface has the address."""
    for library in ("GLOO", "NCCL"):
        os.environ[f"{library}_SOCKET_IFNAME"] = find_interface(address)
    store.set(f"here {index}", "yes")
    store.wait([f"here {other}" for other in range(size)], timedelta(seconds=START_S))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=index,
        world_size=size,
        timeout=timedelta(seconds=deadline_s),
    )


def find_interface(address: str) -> str:
    """Return the network interface of this machine with this IPv4 address. Raises TrainingError if there is none."""
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    raise TrainingError(
        f"no network interface of {socket.gethostname()} has the address {address} under which the cluster knows it; "
        "ranks on several machines need an IPv4 address of the node itself (ray start --node-ip-address)"
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
