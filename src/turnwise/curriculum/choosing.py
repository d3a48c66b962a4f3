"""Choices that several samplers make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from turnwise.curriculum.sampler import NEW, Choice, OfferedTasks

Key = TypeVar("Key")


def draw_weighted(weights: Mapping[Key, float], luck: float) -> Key | None:
    """Return the key that a number in [0, 1) falls on when keys have lengths in proportion to their weights, in their
    order; None if no weight is above 0.

    Raises ValueError for a weight that is negative or not finite."""
    for key, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"the weight of {key!r} is {weight}; it must be finite and at least 0")
    keys = [key for key, weight in weights.items() if weight > 0]
    left = luck * math.fsum(weights.values())
    for key in keys:
        if left < weights[key]:
            return key
        left -= weights[key]
    return keys[-1] if keys else None  # rounding


def draw_even(items: Sequence[Key], luck: float) -> Key | None:
    """Return the item that a number in [0, 1) falls on when all have the same length; None if there is none."""
    return items[int(luck * len(items))] if items else None


def choose_new(offered: OfferedTasks, luck: float, *, kind: str | None = None, pool: str = NEW) -> Choice | None:
    """Return a new task (of this kind) or, if none is left, one of those drawn least often; None if none is free."""
    if offered.has_new(kind):
        return Choice(pool=pool, kind=kind)
    again = draw_even(offered.repeats(kind), luck)
    return None if again is None else Choice(pool=pool, again=again)


def list_drawable(offered: OfferedTasks) -> list[str]:
    """Return the kinds of which a task can be drawn."""
    return [kind for kind in offered.kinds() if offered.has_new(kind) or offered.repeats(kind)]
