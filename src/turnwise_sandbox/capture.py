"""What a program prints, up to a limit."""

from __future__ import annotations

import io
import os


class Capture:
    """Collects one stream up to a limit and counts what came beyond it."""

    __slots__ = ("_kept", "_room", "dropped")

    def __init__(self, limit: int = 0) -> None:
        self.reset(limit)

    def reset(self, limit: int) -> None:
        """Start anew; `limit` bytes are kept."""
        self._kept = io.BytesIO()
        self._room = limit
        self.dropped = 0

    def add(self, chunk: bytes) -> None:
        """Take what fits."""
        fits = self._kept.write(chunk[: self._room])
        self._room -= fits
        self.dropped += len(chunk) - fits

    def take(self) -> bytes:
        """Hand over what was kept, without a copy, and hold it no longer: whoever is read may idle for long."""
        kept, self._kept = self._kept, io.BytesIO()
        return kept.getvalue()

    def read(self, pipe: int) -> bool:
        """Take one piece from a non-blocking pipe. False at its end."""
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return True
        self.add(chunk)
        return bool(chunk)

    def drain(self, pipe: int) -> None:
        """Take all that is there, without waiting for more."""
        try:
            while chunk := os.read(pipe, 1 << 16):
                self.add(chunk)
        except BlockingIOError:
            return
