"""The words that streams are made of: each is one token of a tokenizer that is trained on them."""

from __future__ import annotations

SLOTS = ("red", "blue", "green", "pink", "gold", "gray", "teal", "lime")
VALUES = ("ka", "lo", "mi", "nu", "pe", "ra", "so", "tu")
"""A slot with a value is one word, such as "redka"."""
NONE = "none"
"""Stands where nothing is known."""


def slot_of(word: str) -> str | None:
    """The slot that a word gives a value; None if it gives none."""
    return next((slot for slot in SLOTS if word.startswith(slot) and word.removeprefix(slot) in VALUES), None)
