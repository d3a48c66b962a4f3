"""Reads the guest's messages from its socket, and holds replies while they grow."""

from __future__ import annotations

import json
import queue
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

LENGTH = struct.Struct(">I")
Message = dict[str, Any]


def read_exactly(end: socket.socket, size: int) -> bytes | None:
    """Return the next `size` bytes; None if the other side has closed the socket."""
    parts = bytearray()
    while len(parts) < size:
        part = end.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def read_all(end: socket.socket, inbox: queue.SimpleQueue[Message | None]) -> None:
    """Put every message into the inbox, then None when the other side has closed the socket."""
    while (head := read_exactly(end, LENGTH.size)) is not None:
        body = read_exactly(end, LENGTH.unpack(head)[0])
        if body is None:
            break
        inbox.put(json.loads(body))
    inbox.put(None)


@dataclass(slots=True)
class Request:
    """A requested reply, and what was sampled of it."""

    number: int
    message: Message
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def begin_anew(self) -> int:
        """Forget what was sampled. Returns the number of tokens."""
        num_dropped = len(self.token_ids)
        for column in (self.token_ids, self.logprobs, self.versions):
            column.clear()
        return num_dropped

    def answer(self, reason: str) -> Message:
        """Return the fields of a completion."""
        first, last = self.versions[0], self.versions[-1]
        return {
            "token_ids": self.token_ids,
            "logprobs": self.logprobs,
            "versions": self.versions if first != last else None,
            "full_logprobs": None,
            "finish_reason": reason,
            "version_first": first,
            "version_last": last,
        }
