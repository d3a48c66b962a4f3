"""Messages between supervisor, zygote, cells and live interpreters: JSON headers on SEQPACKET sockets, files beside them.

A message is one packet: a JSON object, with file descriptors attached. Payloads (code, files, stdin) never travel in a
packet: they lie in a memfd that only the process running them reads, so neither zygote nor cell ever holds one rollout's
code where another's could look for it.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

MAX_PACKET = 64 << 10
MAX_FDS = 16

_FD_SIZE = array.array("i").itemsize
_ANCILLARY = socket.CMSG_SPACE(MAX_FDS * _FD_SIZE)


def send(connection: socket.socket, header: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one packet. Raises BlockingIOError when the socket is full, BrokenPipeError when nobody listens."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    connection.sendmsg([json.dumps(header).encode()], ancillary)


def receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next packet and its file descriptors (close-on-exec, now the caller's). The header is None at the end of the
    stream, and for a packet that is not a JSON object (its descriptors are closed): the sender is not to be trusted."""
    data, ancillary, _flags, _address = connection.recvmsg(MAX_PACKET, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = array.array("i")
            whole.frombytes(content[: len(content) - len(content) % _FD_SIZE])
            fds += whole
    try:
        header = json.loads(data) if data else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        close_all(fds)
        return None, []
    return header, fds


def close_all(fds: Sequence[int]) -> None:
    """Close every descriptor, also when one is closed already."""
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            continue


def to_memfd(parts: Sequence[bytes | memoryview]) -> int:
    """A memfd holding `parts` one after the other, positioned at its start."""
    fd = os.memfd_create("turnwise", os.MFD_CLOEXEC)
    try:
        for part in parts:
            view = memoryview(part)
            while len(view):
                view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


def pack_payload(header: Mapping[str, Any], blobs: Sequence[bytes]) -> list[bytes]:
    """The parts of a payload: 8 bytes of length, a JSON header (with the blobs' sizes), the blobs."""
    text = json.dumps({**header, "sizes": [len(b) for b in blobs]}).encode()
    return [len(text).to_bytes(8, "little"), text, *blobs]


def unpack_payload(fd: int) -> tuple[dict[str, Any], list[bytes]]:
    """Read a payload from its memfd."""
    size = os.fstat(fd).st_size
    data = bytearray()
    while len(data) < size:
        part = os.pread(fd, size - len(data), len(data))
        if not part:
            break
        data += part
    length = int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8 : 8 + length]))
    blobs, at = [], 8 + length
    for blob in header["sizes"]:
        blobs.append(bytes(data[at : at + blob]))
        at += blob
    return header, blobs
