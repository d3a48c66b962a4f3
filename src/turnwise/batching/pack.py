"""Decides which samples share a micro-batch. Pure planning over lengths."""

from __future__ import annotations

from collections.abc import Sequence


def plan_micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Plan micro-batches as lists of indices: in order, as many as fit in `max_tokens`; a longer sample has its own
    micro-batch.

    Every index appears exactly once. Micro-batches only sum, so any plan gives the same gradient up to rounding.
    """
    plan: list[list[int]] = []
    used = max_tokens + 1
    for index, length in enumerate(lengths):
        if used + length > max_tokens:
            plan.append([])
            used = 0
        plan[-1].append(index)
        used += length
    return plan
