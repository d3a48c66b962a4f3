"""Messages between supervisor, zygote, cells and live interpreters: packets on SEQPACKET sockets, with descriptors
attached.

What happens once per program is packed binary, everything else is JSON. Payloads (code, files, stdin) never travel in a
packet: they lie in a memfd that only the process running them reads, so neither zygote nor cell ever holds one
rollout's code where another's could look for it."""

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
MAX_FDS = 16

_FD_SIZE = array.array("i").itemsize
_INTS = [struct.Struct(f"{count}i") for count in range(MAX_FDS + 1)]
_ANCILLARY = socket.CMSG_SPACE(MAX_FDS * _FD_SIZE)


def send(connection: _socket.socket, header: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one packet. Raises BlockingIOError when the socket is full, BrokenPipeError when nobody listens."""
    send_packet(connection, json.dumps(header).encode(), fds)


def send_packet(connection: _socket.socket, packet: bytes, fds: Sequence[int] = ()) -> None:
    """Send packed bytes. Raises as `send`."""
    connection.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def receive_packet(connection: _socket.socket) -> tuple[bytes, list[int]]:
    """The next packet, empty at the end of the stream, and its descriptors (close-on-exec, now the caller's)."""
    data, ancillary, _flags, _address = connection.recvmsg(MAX_PACKET, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += _INTS[len(content) // _FD_SIZE].unpack_from(content)
    return data, fds


def receive(connection: _socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next packet as JSON. The header is None at the end of the stream, and for a packet that is not a JSON object
    (its descriptors are closed): the sender is not to be trusted."""
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


PAYLOAD = struct.Struct("<BQIQ")
"""Language (0 Python, 1 bash), seed, number of files, bytes of code. Code, then per file `FILE` and its name and
content."""
FILE = struct.Struct("<IQ")
RUN = struct.Struct("<cdIBQ")
"""`b"R"`, seconds, processor seconds, flags, payload bytes; then the paths to hand back, separated by NUL."""
REPORT = struct.Struct("<iBddQB")
"""Wait status, how it ended, elapsed and processor seconds, peak memory in bytes, disk full; then one byte per path:
found or not."""
UID = struct.Struct("<I")
"""The user id of a cell that is to be forked; then JSON, which is the same for many. `SAME_UID`: whoever the zygote
is."""
SAME_UID = 2**32 - 1
LIVE = struct.Struct("<BQI")
"""What a live process is to be: language (0 Python, 1 bash), seed, processor seconds (0: any number)."""

HAS_STDIN, HAS_PEER = 1, 2
BY_ITSELF, WALL, KILLED = 0, 1, 2
LAST = 8
"""Added to how a program ended: its cell ends as well, since what the program left could not be removed."""
KILL = b"K"
READY = b'{"ready": true}'


def pack_payload(source: bytes, files: Mapping[str, bytes], *, language: str, seed: int) -> list[bytes]:
    """The parts of what a program reads. Binary and flat: a fresh process reads it with few page faults."""
    parts = [PAYLOAD.pack(language == "bash", seed % 2**64, len(files), len(source)), source]
    for name, content in files.items():
        encoded = name.encode()
        parts += [FILE.pack(len(encoded), len(content)), encoded, content]
    return parts


def mark_last(report: bytes) -> bytes:
    """The same report with `LAST` added."""
    return report[:4] + bytes([report[4] | LAST]) + report[5:]


def unpack_files(data: bytes, at: int, count: int) -> list[tuple[str, bytes]]:
    """The files of a payload, from offset `at`."""
    files = []
    for _ in range(count):
        name_size, size = FILE.unpack_from(data, at)
        at += FILE.size
        files.append((data[at : at + name_size].decode(), data[at + name_size : at + name_size + size]))
        at += name_size + size
    return files
