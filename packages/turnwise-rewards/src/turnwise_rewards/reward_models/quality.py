"""The quality values of ReST-MCTS* in a tree of turns whose ends are known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def compute_quality(parents: Sequence[int | None], right: Mapping[int, bool]) -> dict[int, float]:
    """Return the quality value of the state after every turn (arXiv 2406.03816, section 3.1).

    `v_k = max(0, v_{k-1} + w_k)` with `w_k = (1 - v_{k-1}) / (m_k + 1) * (1 - 2 r_k)` and v = 0 before the first turn.
    `m_k` is the number of turns still needed to the nearest right end below, and r_k is 0; where no right end is below,
    r_k is 1 and `m_k + 1` is one more than what its nearest ancestor with one needs, as in the released code. On a way
    to a right end after K turns the values are 1/K, 2/K, ..., 1. It measures progress in turns, and is no probability.

    Args:
        parents: the parent of each turn, None at the start; parents come first.
        right: whether the path that ends with this turn succeeded, for every last turn.

    Returns:
        Values by turn; empty if nothing ended right.
    """
    needed: dict[int | None, int] = {}
    for turn in reversed(range(len(parents))):
        if right.get(turn):
            needed[turn] = 0
        if turn in needed:
            above = parents[turn]
            needed[above] = min(needed.get(above, needed[turn] + 1), needed[turn] + 1)
    if None not in needed:
        return {}
    values: dict[int | None, float] = {None: 0.0}
    divisors: dict[int | None, int] = {None: needed[None] + 1}
    for turn, above in enumerate(parents):
        divisors[turn] = needed[turn] + 1 if turn in needed else divisors[above]
        step = (1 - values[above]) / divisors[turn]
        values[turn] = max(0.0, values[above] + (step if turn in needed else -step))
    return {turn: value for turn, value in values.items() if turn is not None}
