"""Whitening over a batch: all numbers passed in get mean 0 and deviation 1. Masked tokens are never among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from turnwise.algorithms.advantages.groups import has_signal
from turnwise.algorithms.credit import FloatArray, TokenAdvantages

Whitening = Literal["full", "scale", "none"]


def compute_whitened(
    rows: Sequence[FloatArray], *, whitening: Whitening = "full", epsilon: float = 1e-8
) -> list[FloatArray]:
    """Whiten all numbers of all rows together: `(x - mean) / (std + epsilon)`, `std` the n-1 standard deviation.

    Args:
        rows: arrays of any lengths, `[L_i]`; empty ones are ignored.
        whitening: "full" as above; "scale" divides by `std + epsilon` and does not centre; "none" changes nothing.
        epsilon: added to the deviation (verl takes `sqrt(var + 1e-8)`; relative difference 5e-9 / var).

    Returns:
        Rows of the same lengths. Numbers that all lie within 1e-6 of their scale (a single number, too) have no
        deviation: "full" gives exactly 0.0, "scale" leaves them unchanged. The statistics are those of the given rows
        only: pass the whole batch, never one data-parallel share of it.

    Raises:
        ValueError: a number is not finite.
    """
    if whitening == "none":
        return list(rows)
    values = np.concatenate([np.zeros(0), *rows])
    if not np.isfinite(values).all():
        raise ValueError(
            f"{int((~np.isfinite(values)).sum())} of {values.size} numbers to whiten are not finite; check rewards and "
            "values"
        )
    center, scale = 0.0, 1.0
    if has_signal([float(values.min()), float(values.max())] if values.size else []):
        mean = math.fsum(values) / values.size
        scale = math.sqrt(math.fsum((values - mean) ** 2) / (values.size - 1)) + epsilon
        center = mean if whitening == "full" else 0.0
    elif whitening == "full":
        return [np.zeros_like(row) for row in rows]
    return [(row - center) / scale for row in rows]


def whiten_tokens(
    advantages: Sequence[TokenAdvantages | None], *, whitening: Whitening = "full", epsilon: float = 1e-8
) -> list[TokenAdvantages | None]:
    """Apply `compute_whitened` to all sampled tokens of the batch, whatever their turn; None stays None."""
    rows = [row for turns in advantages for row in turns or []]
    whitened = iter(compute_whitened(rows, whitening=whitening, epsilon=epsilon))
    return [None if turns is None else [next(whitened) for _ in turns] for turns in advantages]
