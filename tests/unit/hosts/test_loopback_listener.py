"""Listening for programs of this machine: free ports, taken ones, small packets."""

import socket

import pytest

from turnwise.core.errors import EnvironmentFault
from turnwise.hosts.loopback import open_listener


def test_a_free_port_is_taken_once_and_small_packets_are_sent_at_once() -> None:
    with open_listener(0) as listener:
        address, port = listener.getsockname()
        assert address == "127.0.0.1"
        assert listener.proto == socket.IPPROTO_TCP  # asyncio turns Nagle's algorithm off for sockets that say so
        listener.listen()
        with pytest.raises(EnvironmentFault, match=rf"cannot use port {port} of 127.0.0.1: .*; choose another"):
            open_listener(port)
