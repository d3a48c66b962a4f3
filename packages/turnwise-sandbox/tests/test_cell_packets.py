import asyncio
import socket

import pytest

from turnwise_sandbox import wire
from turnwise_sandbox.handles import Cell


def test_a_packet_is_read_although_its_sender_left_without_reading_ours() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        wire.send_packet(theirs, b"report")
        wire.send_packet(ours, b"unread")
        theirs.close()
        assert wire.receive_packet(ours) == (b"report", [])
        assert wire.receive_packet(ours) == (b"", [])


def test_a_cell_that_ends_as_it_is_stopped_has_reported() -> None:
    async def run() -> tuple[bytes, list[int]]:
        cell = Cell(None, None, None, 0, "slot")
        try:
            cell.attach(asyncio.get_running_loop())
            answer = cell.expect()
            wire.send_packet(cell._theirs, b"report")
            wire.send_packet(cell.connection, wire.KILL)
            cell.passed()
            return await asyncio.wait_for(answer, 10)
        finally:
            cell.close()

    assert asyncio.run(run()) == (b"report", [])


def test_a_reset_connection_ends_the_stream() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        wire.send_packet(ours, b"unread")
        theirs.close()
        assert wire.receive_packet(ours) == (b"", [])
        with pytest.raises(BrokenPipeError):
            wire.send_packet(ours, b"more")
