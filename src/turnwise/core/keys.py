"""Keys that distinguish the tokens of prompts where results computed from them are shared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ids = TypeVar("Ids", list[int], NDArray[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Adjacent placeholder ids in a prompt that stand for one picture or a piece of it: the ids are equal whatever the
    picture shows. A place is one by its span, never by its id."""

    start: int
    length: int
    digest: str
    """Digest of the picture (`messages.ImagePart`)."""
    offset: int = 0
    """Row of the picture's features that the first place stands for; above 0 in later pieces of a picture that is cut
    into tiles or rows."""
    grid: tuple[int, int, int] | None = None
    """Time, rows and columns of the places, where a model numbers positions by them; None elsewhere."""

    def shift(self, by: int) -> Span:
        """Return the same span `by` places later."""
        return replace(self, start=self.start + by)


def read_span(row: Sequence[Any]) -> Span:
    """Return the span that `dataclasses.astuple` made a row of, also after a message of JSON. Raises TypeError or
    ValueError for anything else."""
    start, length, digest, offset, grid = row
    return Span(start=start, length=length, digest=digest, offset=offset, grid=None if grid is None else tuple(grid))


def is_text(key: int) -> bool:
    """Whether a key of `to_keys` is a token id."""
    return key >= 0


def to_keys(token_ids: Ids, spans: Sequence[Span] = ()) -> Ids:
    """One number per token, `[N]`, by which cache pages and nodes of a prefix tree are shared: the ids themselves where
    all of them are text, and inside a span a negative number derived from its content.

    Text never equals a span, and two spans that differ in picture, piece or length are equal with probability
    2**-63.
    """
    if not spans:
        return token_ids
    keys = np.array(token_ids, np.int64)
    for span in spans:
        content = hashlib.sha256(f"{span.length} {span.offset} {span.grid} {span.digest}".encode()).digest()
        keys[span.start : span.start + span.length] = -1 - (int.from_bytes(content[:8]) >> 1)
    if isinstance(token_ids, list):
        return list(map(int, keys))
    return keys
