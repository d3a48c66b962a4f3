"""Finds passages, by BM25: by words, without stemming or synonyms."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np

# bm25s starts JAX if that is installed, and JAX would reserve three quarters of a GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import bm25s

from turnwise.environments.search_qa.corpus import Passage

_WORD = re.compile(r"\w+")
_TITLE_WEIGHT = 0.2
"""Lets the subject of a passage break near-ties; a larger weight would bury passages that mention a name elsewhere."""
logging.getLogger("bm25s").setLevel(logging.WARNING)


def tokenize(text: str) -> list[str]:
    """Return lower-case words; punctuation separates them."""
    return _WORD.findall(text.lower())


class Retriever(Protocol):
    """Finds passages of a corpus. Safe to call from several threads."""

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The corpus."""
        ...

    def search(self, query: str, top_k: int) -> list[Passage]:
        """Return at most `top_k` passages for a query, best first; ties in the order of the corpus."""
        ...


class WordRetriever:
    """BM25 (Lucene's variant, k1=0.9, b=0.4) over some passages, immutable once built.

    Two indexes, one of the titles with a small weight and one of the texts; a title that its text does not contain
    counts as the text's beginning.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        """Index the passages; an empty index answers every query with nothing."""
        self._passages = tuple(passages)
        self._vocabulary: dict[str, int] = {}
        texts = [self._to_ids(p.text if p.title in p.text else f"{p.title} {p.text}") for p in self._passages]
        titles = [self._to_ids(p.title) for p in self._passages]
        self._texts = self._build_index(texts)
        self._titles = self._build_index(titles) if any(titles) else None

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The corpus."""
        return self._passages

    def search(self, query: str, top_k: int) -> list[Passage]:
        """Return at most `top_k` passages that share a word with the query, best first; ties in the order of the
        corpus."""
        ids = [self._vocabulary[word] for word in tokenize(query) if word in self._vocabulary]
        if not ids or top_k < 1:
            return []
        scores = self._texts.get_scores_from_ids(ids)
        if self._titles is not None:
            scores += _TITLE_WEIGHT * self._titles.get_scores_from_ids(ids)
        threshold = np.partition(scores, -top_k)[-top_k] if len(scores) > top_k else 0.0
        candidates = np.flatnonzero((scores >= threshold) & (scores > 0))
        best = candidates[np.argsort(-scores[candidates], kind="stable")[:top_k]]
        return [self._passages[index] for index in best]

    def _to_ids(self, text: str) -> list[int]:
        vocabulary = self._vocabulary
        return [vocabulary.setdefault(word, len(vocabulary)) for word in tokenize(text)]

    def _build_index(self, documents: list[list[int]]) -> bm25s.BM25:
        index = bm25s.BM25(k1=0.9, b=0.4, backend="numpy")
        if self._vocabulary:
            index.scores = index.build_index_from_ids(
                list(range(len(self._vocabulary))), documents, show_progress=False
            )
        return index
