"""Decides from the evaluations on the selection set whether training ends early."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

Scores = Mapping[str, float]
"""Mean success by task id."""
ERROR = 0.05
"""Largest probability that a run that never becomes worse has an evaluation that counts as a decline."""


def count_without_progress(
    evaluations: Sequence[Scores], on: Literal["decline", "plateau"], *, num_planned: int
) -> int:
    """Return how many of the last evaluations in a row count against going on.

    `evaluations` are in the order of their steps; the run makes `num_planned` of them. With "plateau" an evaluation
    counts if its mean is not above that of the best before it. With "decline" it counts if it is worse than the best
    before it by more than chance (`is_decline`), whichever two of all evaluations these are.
    """
    planned = max(num_planned, len(evaluations))
    count, best = 0, 0
    for place in range(1, len(evaluations)):
        before, now = evaluations[best], evaluations[place]
        is_better = _mean(now) > _mean(before)
        counts = not is_better if on == "plateau" else is_decline(before, now, num_pairs=planned * (planned - 1) // 2)
        count = count + 1 if counts else 0
        if is_better:
            best = place
    return count


def is_decline(best: Scores, now: Scores, *, num_pairs: int) -> bool:
    """Return whether `now` is worse than `best` on the tasks that both have, by more than chance.

    It is the exact one-sided sign test on tasks whose score differs (McNemar's exact test where tasks have one sample).
    Its level is 5% divided by the number of pairs of evaluations that might be compared (Bonferroni), since the best is
    chosen among them and every evaluation is tested.
    """
    differences = [now[task] - score for task, score in best.items() if task in now and now[task] != score]
    num_lost = sum(difference < 0 for difference in differences)
    return compute_sign_tail(num_lost, len(differences)) <= ERROR / num_pairs


def compute_sign_tail(num_lost: int, num_different: int) -> float:
    """Return the probability of at least `num_lost` losses among `num_different` fair coins."""
    ways = sum(math.comb(num_different, count) for count in range(num_lost, num_different + 1))
    return float(ways / 2**num_different)


def _mean(scores: Scores) -> float:
    return math.fsum(scores.values()) / len(scores) if scores else 0.0
