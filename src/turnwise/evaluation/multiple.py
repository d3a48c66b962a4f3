"""Several tests at once."""

from __future__ import annotations

from collections.abc import Sequence


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number, in the given order (Holm 1979): rejecting those below a level errs
    with at most that probability in any of them, however they depend on each other."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
