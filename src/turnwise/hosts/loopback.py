"""A listening socket for programs of this machine."""

from __future__ import annotations

import socket

from turnwise.core.errors import EnvironmentFault
from turnwise.hosts.local import LOOPBACK


def open_listener(port: int) -> socket.socket:
    """Bind a TCP socket on the loopback interface; port 0 picks a free one. Raises EnvironmentFault if it is taken."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # named, else asyncio leaves small packets waiting
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as cause:
        listener.close()
        raise EnvironmentFault(f"cannot use port {port} of {LOOPBACK}: {cause.strerror}; choose another") from cause
    return listener
