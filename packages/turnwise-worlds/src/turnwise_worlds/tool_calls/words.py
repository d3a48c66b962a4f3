"""The words of an API world: the beginnings of names, the numbers that make them opaque, and values.

A tool for the weather is `weather42` in one task and `weather17` in the next, so that the number can only be read,
never known. A small tokenizer holds the word, the number and each value as one token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product

from turnwise.core.protocols import Split


def _join(first: str, second: str) -> tuple[str, ...]:
    """Return all pairs of syllables, ordered so that the first few already contain every syllable."""
    words = map("".join, product(first.split(), second.split()))
    return tuple(sorted(words, key=lambda word: hashlib.blake2b(word.encode()).digest()))


NUMBERS = tuple(range(10, 100))
"""Numbers at the end of tools' and parameters' names, redrawn for every task."""
VALUES = _join("Al Bel Cor Dan Ek Fer Gal Hel Im", "dor mar wyn ton vik rana sk lad mer fosk")
"""Values that a user may ask for, whatever the parameter."""
CAPABILITIES = (
    "weather",
    "flight",
    "hotel",
    "taxi",
    "recipe",
    "movie",
    "song",
    "news",
    "stock",
    "map",
    "alarm",
    "ticket",
)
"""Purposes of tools: the beginning of a tool's name, and a word of the request."""
SLOTS = (
    *("city", "day", "name", "colour", "size", "price", "date", "hour"),
    *("street", "country", "language", "topic", "brand", "team", "room", "level"),
)
"""Meanings of parameters: the beginning of a parameter's name, and a word of the request."""
MIN_WORDS, MAX_WORDS = 24, min(len(NUMBERS), len(VALUES))


def split_of(tool: str, parameters: Sequence[str]) -> Split:
    """Return the one split that may have a tool of this name with exactly these parameters, by a hash of the names."""
    digest = hashlib.blake2b(" ".join((tool, *sorted(parameters))).encode(), digest_size=1).digest()
    return "train" if digest[0] < 128 else "heldout"
