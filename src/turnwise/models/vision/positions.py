"""Positions with three axes: time, row and column (M-RoPE, arXiv 2409.12191, section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.core.keys import Span


def number_axes(num_tokens: int, spans: Sequence[Span]) -> NDArray[np.int64]:
    """Return the positions `[3, T]` of a sequence's tokens, as `get_rope_index` of Qwen's models does for pictures.

    A text token has its position on every axis. The place in row r and column c of a picture that begins at position p
    has p on the axis of time, p + r and p + c on the others, and the text after it goes on at p + max(rows, columns).
    Each span is a whole picture and has a `grid`.
    """
    positions = np.empty((3, num_tokens), np.int64)
    at, next_position = 0, 0
    for span in spans:
        assert span.grid is not None
        positions[:, at : span.start] = next_position + np.arange(span.start - at)
        next_position += span.start - at
        at = span.start + span.length
        axes = np.indices(span.grid).reshape(3, -1)
        positions[:, span.start : at] = next_position + axes
        next_position += max(span.grid[1:])
    positions[:, at:] = next_position + np.arange(num_tokens - at)
    return positions
