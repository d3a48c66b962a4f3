"""Retrieval by meaning: cosine similarity of sentence embeddings, alone or fused with BM25."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from turnwise.core.types import FloatArray
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.retrieval import Retriever

RRF_CONSTANT = 60
"""Constant of reciprocal rank fusion, as in its paper."""
FUSED_DEPTH = 50
"""Number of results of each ranking that are fused."""


class Embedder(Protocol):
    """Turns texts into vectors of length 1."""

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Return unit vectors, shape [len(texts), width]."""
        ...


class DenseRetriever:
    """Exact search by cosine similarity; every query has results."""

    def __init__(self, passages: Sequence[Passage], embedder: Embedder) -> None:
        """Embed every passage, with its title first if the text does not contain it."""
        self._passages = tuple(passages)
        self._embedder = embedder
        texts = [p.text if p.title in p.text else f"{p.title}. {p.text}" for p in self._passages]
        self._vectors = embedder.embed(texts) if texts else None

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The corpus."""
        return self._passages

    def search(self, query: str, top_k: int) -> list[Passage]:
        """See `Retriever.search`."""
        if self._vectors is None or top_k < 1:
            return []
        scores = self._vectors @ self._embedder.embed([query])[0]
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [self._passages[index] for index in best]


class HybridRetriever:
    """Fuses two rankings of one corpus by reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009).

    A passage scores 1 / (60 + rank), summed over the rankings that list it among their first `FUSED_DEPTH`.
    """

    def __init__(self, first: Retriever, second: Retriever) -> None:
        """Both must search the same passages in the same order; otherwise raises ValueError."""
        if first.passages != second.passages:
            raise ValueError("a hybrid search needs two retrievers of the same passages")
        self._rankings = (first, second)
        self._positions = {passage: index for index, passage in enumerate(first.passages)}

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The corpus."""
        return self._rankings[0].passages

    def search(self, query: str, top_k: int) -> list[Passage]:
        """See `Retriever.search`."""
        scores: dict[Passage, float] = {}
        for retriever in self._rankings:
            for rank, passage in enumerate(retriever.search(query, max(top_k, FUSED_DEPTH)), start=1):
                scores[passage] = scores.get(passage, 0.0) + 1 / (RRF_CONSTANT + rank)
        return sorted(scores, key=lambda passage: (-scores[passage], self._positions[passage]))[: max(0, top_k)]
