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


def split_epochs(count: int, updates: int, epochs: int, seed: int, *path: int) -> tuple[tuple[int, ...], ...]:
    """The updates of several passes over `range(count)`, one pass after the other, each cut by `split_updates` in an
    order of its own: every index is in one update of every pass."""
    # The first pass is named as a batch that has one pass only, which keeps its numbers.
    names = [path, *((*path, epoch) for epoch in range(1, epochs))]
    return tuple(update for name in names for update in split_updates(count, updates, seed, *name))
