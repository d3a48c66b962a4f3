"""The keyword arguments of the style "fold"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise_worlds.memory.arguments import MemoryArguments, MemorySwitch


class FoldArguments(MemoryArguments):
    """Sections that are read in the main context, or in branches of which it sees only the returned message.

    There are no tools, so the limits of tools are not read.
    """

    style: Literal["fold"] = "fold"
    """How the policy remembers."""
    sections: int = Field(4, ge=1, le=10_000)
    """Number of sections."""
    section_events: int = Field(8, ge=4, le=1000)
    """Events per section."""
    max_return_words: int = Field(6, ge=1, le=10_000)
    """Most words that a branch may return; with more the episode ends without success."""
    memory: MemorySwitch = "kept"
    """"kept", or a control that must fail: with "erased", returned messages are not shown."""
