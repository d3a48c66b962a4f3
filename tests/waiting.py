"""Waits for a condition, with a deadline that no load reaches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

DEADLINE_S = 60.0


async def until(holds: Callable[[], object]) -> None:
    """Let the event loop run until `holds()`."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.002)


def wait_outside(holds: Callable[[], object]) -> None:
    """Wait until `holds()` in a thread without an event loop."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
