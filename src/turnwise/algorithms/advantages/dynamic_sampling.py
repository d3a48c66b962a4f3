"""Which groups are worth training on, and how many prompts to draw for the rest (DAPO, arXiv 2503.14476, section 3.2).

Pure planning: it draws nothing and sees only the metric values of a group's members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise.algorithms.advantages.groups import select_scored
from turnwise.algorithms.options import check_range


def is_informative(metrics: Sequence[float | None], *, tolerance: float = 1e-6) -> bool:
    """Whether a group's *metric* varies by more than `tolerance` (DAPO's `0 < number correct < n`).

    Give the unshaped metric, not the reward that trains: a length penalty makes an all-wrong group's rewards differ
    although it teaches nothing about the task. None (not scored) is left out; a group with fewer than two scored
    members is not informative. The range is compared, never a standard deviation (that of [0.1] * 3 is 1.4e-17, not 0).
    Raises ValueError when a metric is not finite or the tolerance is negative.
    """
    check_range("tolerance", tolerance, 0)
    scored = select_scored(metrics)
    return len(scored) >= 2 and max(scored) - min(scored) > tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Refill:
    """What to do next."""

    state: Literal["full", "draw", "spent"]
    """"full": train on `kept`. "draw": roll out more prompts, then plan again. "spent": the budget is used up, train on
    `kept` although it is short, or skip the step where it is empty."""
    num_prompts: int
    """Prompts to draw now; 0 unless "draw"."""
    kept: tuple[int, ...]
    """Positions of the groups to train on, in the order drawn, at most the number wanted."""


def plan_refill(informative: Sequence[bool], *, num_wanted: int, batch_size: int, max_batches: int) -> Refill:
    """Plan the next draw from all groups drawn so far for this step.

    Args:
        informative: `is_informative` of every group drawn so far, in the order drawn (not the order finished, which
            favours short trajectories).
        num_wanted: groups per optimizer step, at least 1.
        batch_size: most prompts to draw at once, at least 1.
        max_batches: budget per step; `max_batches * batch_size` prompts in all.

    Returns:
        A Refill. It draws what is expected to fill the rest at the share kept so far (counted with one informative and
        one uninformative group more than seen, so that neither 0 nor 1 is certain), at most `batch_size` and what the
        budget leaves. Groups beyond `num_wanted` are not kept.

    Deviation: DAPO draws whole batches and stops with an error when the budget is spent; here a short batch is returned
    as "spent".

    Raises:
        ValueError: a count is below 1.
    """
    for name, value in (("num_wanted", num_wanted), ("batch_size", batch_size), ("max_batches", max_batches)):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    positions = [index for index, keep in enumerate(informative) if keep]
    kept = tuple(positions[:num_wanted])
    if len(kept) == num_wanted:
        return Refill(state="full", num_prompts=0, kept=kept)
    budget_left = max_batches * batch_size - len(informative)
    if budget_left <= 0:
        return Refill(state="spent", num_prompts=0, kept=kept)
    share = (len(positions) + 1) / (len(informative) + 2)
    needed = math.ceil((num_wanted - len(kept)) / share)
    return Refill(state="draw", num_prompts=min(needed, batch_size, budget_left), kept=kept)
