"""The words of a text, for parts that compare texts."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")


def find_words(text: str) -> frozenset[str]:
    """Return the different words of a text in small letters: runs of letters and digits of any script."""
    return frozenset(word.casefold() for word in _WORD.findall(text))
