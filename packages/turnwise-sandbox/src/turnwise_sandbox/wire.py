"""Messages between supervisor, zygote, cells and live interpreters: packets on SEQPACKET sockets, with descriptors.

Messages that are sent once per program are packed binary; all others are JSON. Payloads (code, files, stdin) never
travel in a packet. They are in a memfd that only the process running them reads, so neither zygote nor cell holds the
code of one rollout in memory that another's program inherits."""

from __future__ import annotations

import _socket
import array
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

MAX_PACKET = 64 << 10
"""Maximum size of a packet, in bytes."""
MAX_FDS = 16
"""Maximum number of descriptors in a packet."""

_FD_SIZE = array.array("i").itemsize
_INTS = [struct.Struct(f"{count}i") for count in range(MAX_FDS + 1)]
_ANCILLARY = socket.CMSG_SPACE(MAX_FDS * _FD_SIZE)


def send(connection: _socket.socket, header: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one JSON packet. Raises BlockingIOError if the socket is full, BrokenPipeError if its other end is
    closed."""
    send_packet(connection, json.dumps(header).encode(), fds)


def send_packet(connection: _socket.socket, packet: bytes, fds: Sequence[int] = ()) -> None:
    """Send one packet of bytes. Raises like `send`."""
    connection.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def receive_packet(connection: _socket.socket) -> tuple[bytes, list[int]]:
    """The next packet, empty at the end of the stream, and its descriptors, which the caller must close."""
    try:
        data, ancillary, _flags, _address = connection.recvmsg(MAX_PACKET, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        # The other end left without reading a packet of ours. Linux says so once, before what the other end had sent.
        data, ancillary, _flags, _address = connection.recvmsg(MAX_PACKET, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += _INTS[len(content) // _FD_SIZE].unpack_from(content)
    return data, fds


def receive(connection: _socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next packet, read as JSON, and its descriptors. The sender is untrusted: the header is None at the end of the
    stream and for a packet that is not a JSON object, whose descriptors are closed."""
    data, fds = receive_packet(connection)
    try:
        header = json.loads(data) if data else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        close_all(fds)
        return None, []
    return header, fds


def close_all(fds: Sequence[int]) -> None:
    """Close every descriptor; skip those that are closed already."""
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            continue


def to_memfd(parts: Sequence[bytes | memoryview]) -> int:
    """A memfd that holds `parts` one after the other, positioned at its start."""
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


PAYLOAD = struct.Struct("<BQIQ")
"""Language (0 Python, 1 bash), seed, number of files, bytes of code. The code follows, then `FILE`, name and content of
each file."""
FILE = struct.Struct("<IQ")
"""Number of bytes of the name and of the content."""
RUN = struct.Struct("<cdIBQ")
"""`b"R"`, seconds, processor seconds, flags, payload bytes. The paths of output files follow, separated by NUL."""
REPORT = struct.Struct("<iBddQB")
"""Wait status, how the program ended, elapsed and processor seconds, peak memory in bytes, whether the disk is full.
One byte per output file follows: whether it exists."""
UID = struct.Struct("<I")
"""The user id of a requested cell, or `SAME_UID`. The rest of the request follows as JSON, which many cells share."""
SAME_UID = 2**32 - 1
"""Stands for the zygote's own user id."""
LOWERS = b"\n"
"""Separates the JSON of a requested cell from the layers of its tree, which few cells share."""
LIVE = struct.Struct("<BQI")
"""Request for a live process: language (0 Python, 1 bash), seed, processor seconds (0 means no bound)."""

HAS_STDIN, HAS_PEER = 1, 2
FLUSH_S = 0.02
"""Seconds that a program has at its wall limit to flush its streams (`guest/program.py`)."""
BY_ITSELF, WALL, KILLED = 0, 1, 2
LAST = 8
"""Added to how a program ended if its cell ends as well, because what the program left could not be removed."""
KILL = b"K"
READY = b'{"ready": true}'


def pack_payload(source: bytes, files: Mapping[str, bytes], *, language: str, seed: int) -> list[bytes]:
    """The parts of a program's payload, which a fresh process can read with few page faults."""
    parts = [PAYLOAD.pack(language == "bash", seed % 2**64, len(files), len(source)), source]
    for name, content in files.items():
        encoded = name.encode()
        parts += [FILE.pack(len(encoded), len(content)), encoded, content]
    return parts


def mark_last(report: bytes) -> bytes:
    """The report with `LAST` added."""
    return report[:4] + bytes([report[4] | LAST]) + report[5:]


def unpack_files(data: bytes, at: int, count: int) -> list[tuple[str, bytes]]:
    """The `count` files of a payload, from offset `at`, as names and contents."""
    files = []
    for _ in range(count):
        name_size, size = FILE.unpack_from(data, at)
        at += FILE.size
        files.append((data[at : at + name_size].decode(), data[at + name_size : at + name_size + size]))
        at += name_size + size
    return files
