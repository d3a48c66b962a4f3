"""The keyword arguments of the style "operations"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise_worlds.memory.arguments import MemoryArguments, MemorySwitch


class OperationsArguments(MemoryArguments):
    """Streams of events that are recorded in a bounded store, by adding, updating and deleting lines (Memory-R1).

    There are no tools, so the limits of tools are not read.
    """

    style: Literal["operations"] = "operations"
    """How the policy remembers."""
    events: int = Field(10, ge=1, le=10_000)
    """Events per stream."""
    max_open: int = Field(3, ge=1, le=7)
    """Most slots open at once, which a store must hold."""
    capacity: int = Field(3, ge=1, le=10_000)
    """Most lines of the store; a further one ends the episode without success."""
    memory: MemorySwitch = "kept"
    """"kept", or a control that must fail: "erased" empties the store before every conversation."""
