"""Sample texts to train a tokenizer on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from random import Random


def take_texts(read: Callable[[int], Iterable[str]], count: int) -> list[str]:
    """The first `count` texts that `read` gives for the numbers from 0 on, of which some must have any."""
    return list(itertools.islice(itertools.chain.from_iterable(map(read, itertools.count())), count))


def mix_texts(read: Callable[[int], Iterable[str]], count: int, seed: int) -> list[str]:
    """`count` texts drawn from all that `read` gives for the first numbers that have so many together."""
    texts: list[str] = []
    index = 0
    while len(texts) < count:
        texts += read(index)
        index += 1
    return Random(seed).sample(texts, len(texts))[:count]
