"""The words of an API world: opaque names, what they stand for, and values. Names and values mean nothing and are short.

A name or value is two syllables of small lists, so that a small tokenizer holds each as one token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product

from turnwise.core.protocols import Split


def _join(first: str, second: str) -> tuple[str, ...]:
    """All pairs of syllables, in an order in which the first few already have every syllable."""
    words = map("".join, product(first.split(), second.split()))
    return tuple(sorted(words, key=lambda word: hashlib.blake2b(word.encode()).digest()))


NAMES = _join("ba de ki lo mu na pe ri so tu va ze", "bak den fol gim lur mip nax ros tev zun")
"""Opaque names of tools and parameters."""
VALUES = _join("Al Bel Cor Dan Ek Fer Gal Hel Im Jor Kel Lan", "dor mar wyn ton vik rana sk lad mer fosk")
"""What a user may ask for, whatever the parameter."""
CAPABILITIES = ("weather", "flight", "hotel", "taxi", "recipe", "movie", "song", "news", "stock", "map", "alarm", "ticket")
"""What a tool is good for; one word of the request."""
SLOTS = (
    "city",
    "day",
    "name",
    "colour",
    "size",
    "price",
    "date",
    "hour",
    "street",
    "country",
    "language",
    "topic",
    "brand",
    "team",
    "room",
    "level",
)
"""What a parameter stands for; one word of the request."""
MAX_WORDS = min(len(NAMES), len(VALUES))


def split_of(tool: str, parameters: Sequence[str]) -> Split:
    """The one split that may have a tool of this name with exactly these parameters: a fair coin tossed by a hash of the names."""
    digest = hashlib.blake2b(" ".join((tool, *sorted(parameters))).encode(), digest_size=1).digest()
    return "train" if digest[0] < 128 else "heldout"
