"""The keyword arguments of the style "rolling"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from turnwise_worlds.memory.arguments import MemoryArguments, MemorySwitch


class RollingArguments(MemoryArguments):
    """Questions of the search world in a window too small for all searches (MEM1, ReSum)."""

    style: Literal["rolling"] = "rolling"
    """How the policy remembers."""
    window_words: int = Field(24, ge=1, le=100_000)
    """A context with more words is full: a note is requested, and a fresh context starts from it."""
    max_note_words: int = Field(6, ge=1, le=10_000)
    """Most words of a note; a longer one ends the episode without success."""
    max_parts: int = Field(5, ge=1, le=1000)
    """Most contexts of an episode, which ends without an answer if another one would open."""
    memory: MemorySwitch = "kept"
    """"kept", or a control that must fail: "erased" starts every context without a note."""
    search: Annotated[Mapping[str, Any], SkipValidation] = Field(default_factory=dict)
    """Arguments of the family `search_qa`, which provides the questions: chains without a repeated relation."""
