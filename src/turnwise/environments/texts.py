"""Sample texts for training a tokenizer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from random import Random


def take_texts(read: Callable[[int], Iterable[str]], count: int) -> list[str]:
    """Return the first `count` texts that `read` returns for the numbers from 0 on; some of these must have texts."""
    return list(itertools.islice(itertools.chain.from_iterable(map(read, itertools.count())), count))


def mix_texts(read: Callable[[int], Iterable[str]], count: int, seed: int) -> list[str]:
    """Return `count` texts drawn from all texts that `read` returns for as many first numbers as are needed."""
    texts: list[str] = []
    index = 0
    while len(texts) < count:
        texts += read(index)
        index += 1
    return Random(seed).sample(texts, len(texts))[:count]
