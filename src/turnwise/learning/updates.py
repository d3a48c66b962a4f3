"""Cuts a batch of samples into optimizer steps."""

from __future__ import annotations

from turnwise.core.seeds import rng


def split_updates(count: int, updates: int, seed: int, *path: int) -> tuple[tuple[int, ...], ...]:
    """Split `range(count)` into at most `updates` parts of nearly equal size, shuffled if there are several.

    Every index is in exactly one part, and no part is empty. `path` names the batch: each batch has its own order.
    """
    order = list(range(count))
    if updates > 1:
        rng(seed, "updates", *path).shuffle(order)
    return tuple(tuple(order[i::updates]) for i in range(updates) if order[i::updates])


def split_epochs(count: int, updates: int, epochs: int, seed: int, *path: int) -> tuple[tuple[int, ...], ...]:
    """Return the updates of several passes over `range(count)`, one pass after the other, each cut by `split_updates`
    in its own order: every index is in one update of every pass."""
    # The first pass has the name of a single-pass batch, so that it keeps the same random numbers.
    names = [path, *((*path, epoch) for epoch in range(1, epochs))]
    return tuple(update for name in names for update in split_updates(count, updates, seed, *name))
