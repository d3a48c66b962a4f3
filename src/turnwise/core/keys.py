"""What tells the tokens of a prompt apart where something computed from them is shared."""

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
    """Placeholder ids of a prompt that stand for one part which is no text: equal ids, whatever the part holds."""

    start: int
    length: int
    digest: str
    """A hash of what stands there."""


def to_keys(token_ids: Ids, spans: Sequence[Span] = ()) -> Ids:
    """One number per token, `[N]`, by which cache pages and nodes of a prefix tree are shared: the ids themselves where
    all of them are text, and in a span a negative number of what stands there.

    Text never equals a span, and two spans of other content or length are equal with a chance of 2**-63.
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
