"""Positions of the tokens of a prompt with pictures, as rotary embeddings read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.core.keys import Span

Positions = NDArray[np.int64]


def number_positions(num_tokens: int, spans: Sequence[Span]) -> Positions:
    """Return the positions of a sequence: `[T]`, counted from 0, or `[3, T]` (time, row, column) if a span has a grid.

    Source: Qwen2-VL's M-RoPE (arXiv 2409.12191, section 2.1). A text token has one number three times. Place k of a
    picture that begins at position p has p plus its time, row and column in the grid; the text after the picture
    continues at p + max(rows, columns).
    """
    if all(span.grid is None for span in spans):
        return np.arange(num_tokens)
    numbers = np.zeros((3, num_tokens), np.int64)
    token = position = 0
    for span in spans:
        if span.grid is None:
            continue
        numbers[:, token : span.start] = np.arange(position, position + span.start - token)
        position += span.start - token
        numbers[:, span.start : span.start + span.length] = position + np.indices(span.grid).reshape(3, -1)
        token, position = span.start + span.length, position + max(span.grid[1:])
    numbers[:, token:] = np.arange(position, position + num_tokens - token)
    return numbers
