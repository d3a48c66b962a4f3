"""The keyword arguments of the style "chunks"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise_worlds.memory.arguments import MemoryArguments

ChunksSwitch = Literal["kept", "erased", "swapped"]


class ChunksArguments(MemoryArguments):
    """Streams of events that are read chunk by chunk, each chunk in its own context (MemAgent).

    There are no tools, so the limits of tools are not read.
    """

    style: Literal["chunks"] = "chunks"
    """How the policy remembers."""
    chunks: int = Field(4, ge=1, le=10_000)
    """Chunks per stream."""
    chunk_events: int = Field(5, ge=4, le=1000)
    """Events per chunk."""
    max_memory_words: int = Field(8, ge=1, le=10_000)
    """Most words of a memory; a longer one ends the episode without success."""
    memory: ChunksSwitch = "kept"
    """"kept", or a control that must fail: "erased" empties the memory before every conversation, "swapped" replaces it
    before the answer by the memory of an episode in which the same slots have other values."""
