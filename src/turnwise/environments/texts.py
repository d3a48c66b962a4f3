"""Sample texts to train a tokenizer on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable


def take_texts(read: Callable[[int], Iterable[str]], count: int) -> list[str]:
    """The first `count` texts that `read` gives for the numbers from 0 on, of which some must have any."""
    return list(itertools.islice(itertools.chain.from_iterable(map(read, itertools.count())), count))
