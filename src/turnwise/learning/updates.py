"""How a batch of samples is cut into optimizer steps."""

from __future__ import annotations

from turnwise.core.seeds import rng


def split_updates(count: int, updates: int, seed: int, *path: int) -> tuple[tuple[int, ...], ...]:
    """`range(count)` in at most `updates` parts of nearly equal size, shuffled when there are several.

    Every index is in exactly one part, and no part is empty. `path` names the batch: each has its own order.
    """
    order = list(range(count))
    if updates > 1:
        rng(seed, "updates", *path).shuffle(order)
    return tuple(tuple(order[i::updates]) for i in range(updates) if order[i::updates])
