"""Texts as words, so that one can be sought in another."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence, Set

_WORD = re.compile(r"\w+(?:[.,]\d+)*")


def list_words(text: str) -> list[str]:
    """Return the words of a text without capitals, accents' spelling and punctuation; `3.5` is one word."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def contains_words(text: Sequence[str], words: Sequence[str]) -> bool:
    """Whether these words, at least one, stand one after the other in the text."""
    if not words:
        return False
    return f" {' '.join(words)} " in f" {' '.join(text)} "


def shared_share(first: Set[str], second: Set[str]) -> float:
    """Return the Jaccard index of the words of two texts: words in both over words in either; 0 for two empty ones."""
    return len(first & second) / len(first | second) if first or second else 0.0
