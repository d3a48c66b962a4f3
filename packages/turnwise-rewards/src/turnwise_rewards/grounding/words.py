"""Texts as words, so that one can be sought in another."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_WORD = re.compile(r"\w+(?:[.,]\d+)*")


def list_words(text: str) -> list[str]:
    """Return the words of a text without capitals, accents' spelling and punctuation; `3.5` is one word."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def contains_words(text: Sequence[str], words: Sequence[str]) -> bool:
    """Whether these words, at least one, stand one after the other in the text."""
    if not words:
        return False
    return f" {' '.join(words)} " in f" {' '.join(text)} "


def shared_share(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the Jaccard index of two texts: words in both, divided by words in either; 0 for two empty texts."""
    one, two = set(first), set(second)
    return len(one & two) / len(one | two) if one or two else 0.0
