"""Keys that distinguish the tokens of prompts where results computed from them are shared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ids = TypeVar("Ids", list[int], NDArray[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Placeholder ids in a prompt that stand for one part that is not text: the ids are equal whatever the part
    contains."""

    start: int
    length: int
    digest: str
    """A hash of the part's content."""


def to_keys(token_ids: Ids, spans: Sequence[Span] = ()) -> Ids:
    """One number per token, `[N]`, by which cache pages and nodes of a prefix tree are shared: the ids themselves where
    all of them are text, and inside a span a negative number derived from its content.

    Text never equals a span, and two spans that differ in content or length are equal with probability 2**-63.
    """
    if not spans:
        return token_ids
    keys = np.array(token_ids, np.int64)
    for span in spans:
        content = hashlib.sha256(f"{span.length} {span.digest}".encode()).digest()
        keys[span.start : span.start + span.length] = -1 - (int.from_bytes(content[:8]) >> 1)
    if isinstance(token_ids, list):
        return list(map(int, keys))
    return keys
