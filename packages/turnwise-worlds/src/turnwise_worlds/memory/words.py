"""The words of streams: each is one token of a tokenizer trained on them."""

from __future__ import annotations

SLOTS = ("red", "blue", "green", "pink", "gold", "gray", "teal", "lime")
VALUES = ("ka", "lo", "mi", "nu", "pe", "ra", "so", "tu")
"""A slot with a value is one word, such as "redka"."""
NONE = "none"
"""The word for an unknown value."""


def slot_of(word: str) -> str | None:
    """Return the slot to which a word gives a value; None if there is none."""
    return next((slot for slot in SLOTS if word.startswith(slot) and word.removeprefix(slot) in VALUES), None)
