"""Replies in answer tags."""

from __future__ import annotations

from turnwise.core.types import Message, text_message


def answer_message(text: str) -> Message:
    """A reply that gives `text` as its answer, be it a memory, an operation or the answer itself."""
    return text_message("assistant", f"<answer> {text} </answer>")
