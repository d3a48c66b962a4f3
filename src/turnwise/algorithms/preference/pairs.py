"""Mines pairs from groups of trajectories: whole attempts, or the single step in which attempts diverge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.core.types import TrajectoryGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomePair:
    """Two members of one group, by index."""

    chosen: int
    rejected: int
    margin: float
    """Reward of the chosen minus that of the rejected; positive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPair:
    """Two turns that reply differently to the same tokens."""

    chosen_member: int
    """Index in the group's trajectories."""
    chosen_turn: int
    """Index in that trajectory's turns."""
    rejected_member: int
    rejected_turn: int
    margin: float
    """Mean reward of the trajectories through the chosen turn minus that of those through the rejected one; positive.
    """


def mine_outcome_pairs(rewards: Sequence[float | None], *, min_margin: float, max_pairs: int = 1) -> list[OutcomePair]:
    """Pair best with worst, second best with second worst, and so on; each member is used at most once.

    None rewards are left out; ties go to the lower index. A group of one, and one whose rewards differ by less than
    `min_margin`, yields no pair. Raises ValueError when a reward is not finite, `min_margin` is not positive or
    `max_pairs` is less than 1.
    """
    if not min_margin > 0 or max_pairs < 1:
        raise ValueError(
            f"min_margin is {min_margin} and max_pairs is {max_pairs}; min_margin must be positive and max_pairs at "
            "least 1"
        )
    scored = [(reward, index) for index, reward in enumerate(rewards) if reward is not None]
    for reward, index in scored:
        if not math.isfinite(reward):
            raise ValueError(
                f"the reward of member {index} is {reward}, not finite; an unscorable trajectory must have reward None"
            )
    best_first = sorted(scored, key=lambda item: (-item[0], item[1]))
    worst_first = sorted(scored)
    pairs: list[OutcomePair] = []
    for (high, chosen), (low, rejected) in zip(best_first, worst_first[: len(scored) // 2], strict=False):
        if high - low < min_margin or len(pairs) == max_pairs:
            break
        pairs.append(OutcomePair(chosen=chosen, rejected=rejected, margin=high - low))
    return pairs


def mine_step_pairs(group: TrajectoryGroup, *, min_margin: float) -> list[StepPair]:
    """Return at most one pair per shared prefix: the step with the best mean reward against the one with the worst.

    Two turns share a prefix when every token before their replies is the same; they are the same step when the replies
    are. The mean is over the scored trajectories through the step; the pair names the best of them for the chosen and
    the worst for the rejected step. Turns of unscored trajectories are left out. Order: prefixes by first appearance.
    Raises ValueError when `min_margin` is not positive.
    """
    if not min_margin > 0:
        raise ValueError(f"min_margin is {min_margin}; it must be positive")
    prefixes: dict[tuple[bytes, ...], dict[bytes, dict[int, tuple[float, int]]]] = {}
    for member, trajectory in enumerate(group.trajectories):
        reward = trajectory.credited
        if reward is None:
            continue
        for branch in trajectory.branches():
            prefix: tuple[bytes, ...] = ()
            for turn in branch:
                added = trajectory.turns[turn]
                prefix = (*prefix, added.context_ids.tobytes())
                reply = added.completion.token_ids.tobytes()
                # A turn that two branches share counts once.
                prefixes.setdefault(prefix, {}).setdefault(reply, {}).setdefault(member, (reward, turn))
                prefix = (*prefix, reply)
    pairs = []
    for steps in prefixes.values():
        means = {
            reply: math.fsum(reward for reward, _ in through.values()) / len(through)
            for reply, through in steps.items()
        }
        best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
        if means[best] - means[worst] < min_margin:
            continue
        chosen = max(steps[best], key=lambda member: steps[best][member][0])
        rejected = min(steps[worst], key=lambda member: steps[worst][member][0])
        pairs.append(
            StepPair(
                chosen_member=chosen,
                chosen_turn=steps[best][chosen][1],
                rejected_member=rejected,
                rejected_turn=steps[worst][rejected][1],
                margin=means[best] - means[worst],
            )
        )
    return pairs
