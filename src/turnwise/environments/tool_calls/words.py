"""The words of an API world: opaque names, what they stand for, and values. Names and values mean nothing and are short.

A name or value is two syllables of small lists, so that a small tokenizer holds each as one token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product

from turnwise.core.protocols import Split


def _join(first: str, second: str) -> tuple[str, ...]:
    return tuple(map("".join, product(first.split(), second.split())))


NAMES = _join("ba de ki lo mu na pe ri so tu va ze go fi", "bak den fol gim lur mip nax ros tev zun")
"""Opaque names of tools and parameters."""
VALUES = _join("Al Bel Cor Dan Ek Fer Gal Hel Im Jor Kel Lan", "dor mar wyn ton vik rana sk lad mer fosk")
"""What a user may ask for, whatever the parameter."""
CAPABILITIES = tuple(
    "weather flight hotel taxi recipe movie song news stock map reminder alarm ticket invoice parcel doctor library museum concert loan "
    "gym train".split()
)
"""What a tool is good for; one word of the request."""
SLOTS = tuple(
    "city day name colour size price date hour street country language currency topic brand team genre author airport room seat code "
    "level zone kind".split()
)
"""What a parameter stands for; one word of the request."""


def split_of(tool: str, parameters: Sequence[str]) -> Split:
    """The one split that may have a tool of this name with exactly these parameters: a fair coin tossed by a hash of the names."""
    text = " ".join((tool, *sorted(parameters)))
    return "train" if hashlib.blake2b(text.encode(), digest_size=1).digest()[0] < 128 else "heldout"
