"""Replies in answer tags, as scripted policies give them; `rewards.answers` reads them."""

from __future__ import annotations

from turnwise.core.types import Message, text_message


def answer_message(text: str, *, reasoning: str | None = None) -> Message:
    """A reply that gives `text` as its answer, be it a memory, a move or the answer itself; `reasoning` comes first."""
    return text_message("assistant", f"<answer> {text} </answer>", reasoning=reasoning)
