"""The keyword arguments of the family `memory`."""

from __future__ import annotations

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.memory.environment import MemorySwitch


class MemoryArguments(FamilyArguments):
    """Streams of events that are read chunk by chunk, each in a context of its own (MemAgent).

    There are no tools, so what limits them is not read.
    """

    chunks: int = Field(4, ge=1, le=10_000)
    """Chunks of a stream."""
    chunk_events: int = Field(5, ge=4, le=1000)
    """Events of a chunk."""
    max_memory_words: int = Field(16, ge=1, le=10_000)
    """Words a memory may have; a longer one ends the episode without success."""
    memory: MemorySwitch = "kept"
    """"kept", or a control that must fail: "erased" or "swapped" (see `Rules`)."""
    naive_keep: Share = 0.4
    """Probability with which the naive policy keeps a line of the old memory."""
