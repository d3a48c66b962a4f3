"""Collecting a program's output, up to a limit."""

from __future__ import annotations

import io
import os


class Capture:
    """Collects one stream up to a limit and counts the bytes beyond it in `dropped`."""

    __slots__ = ("_kept", "_room", "dropped")

    def __init__(self, limit: int = 0) -> None:
        self.reset(limit)

    def reset(self, limit: int) -> None:
        """Forget earlier output and keep up to `limit` bytes of what follows."""
        self._kept = io.BytesIO()
        self._room = limit
        self.dropped = 0

    def add(self, chunk: bytes) -> None:
        """Keep the part of `chunk` that fits."""
        fits = self._kept.write(chunk[: self._room])
        self._room -= fits
        self.dropped += len(chunk) - fits

    def take(self) -> bytes:
        """Return what was kept, without a copy, and release it: an idle cell holds no output in memory."""
        kept, self._kept = self._kept, io.BytesIO()
        return kept.getvalue()

    def read(self, pipe: int) -> bool:
        """Read one piece from a non-blocking pipe. False at its end."""
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return True
        self.add(chunk)
        return bool(chunk)

    def drain(self, pipe: int) -> None:
        """Read everything that a non-blocking pipe holds."""
        try:
            while chunk := os.read(pipe, 1 << 16):
                self.add(chunk)
        except BlockingIOError:
            return
