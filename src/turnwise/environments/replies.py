"""Replies in answer tags for scripted policies; `rewards.answers` reads them."""

from __future__ import annotations

from turnwise.core.types import Message, text_message


def answer_message(text: str, *, reasoning: str | None = None) -> Message:
    """Return a reply whose answer is `text` (a memory, a move or the answer itself), preceded by `reasoning`."""
    return text_message("assistant", f"<answer> {text} </answer>", reasoning=reasoning)
