"""The shop's search."""

from __future__ import annotations

import math
import re
from collections import Counter

from turnwise_worlds.web.site.state import Product, Site


def find_products(site: Site, query: str) -> list[int]:
    """Return the ids of products whose title or category has a word of the query, best first; ties by id.

    A product counts the sum over the query's words that it has of log(1 + products / products with the word): BM25
    without its lengths and repetitions, which titles hardly have. What pages show is searched.
    """
    documents = [_words(f"{face.title} {face.category}") for face in site.faces]
    counts = Counter(word for words in documents for word in words)
    asked = sorted(_words(query))
    weights = {word: math.log(1 + len(documents) / counts[word]) for word in asked if counts[word]}
    scores = [sum(weights[word] for word in weights if word in words) for words in documents]
    hits = [number for number, score in enumerate(scores) if score > 0]
    return sorted(hits, key=lambda number: (-scores[number], number))


def title_words(product: Product) -> set[str]:
    """Return the words of a title, lower case."""
    return _words(product.title)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))
