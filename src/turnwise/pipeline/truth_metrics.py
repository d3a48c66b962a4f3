"""Whether the reward keeps the order of the truth, where an environment tells the truth beside its reward.

Credit compares attempts at one task, so what it pushes towards is decided by their order. Of two attempts, one true
(its part `success`) and one not, an honest reward pays the true one more. A policy that finds a hole makes untrue
attempts that are paid as much, and then more: the share of pairs in the right order falls while the reward rises, and
before the true success does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from turnwise.core.metrics import Mean, Metric
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.pipeline.drift import Drift

TRUTH = "success"
"""The part of a reward that is the truth."""
LEAST = 0.75
"""Share of pairs in the right order below which the reward counts as one that leads away from the truth; 0.5 is a
reward that knows nothing."""

FEWEST = 16
"""Fewest groups that are compared, of the beginning and of the latest; each is the mean over its pairs."""


def compute_truth_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, Metric]:
    """Return `rollout/truth_order`, the mean over groups of `measure_order`; absent if no group has it."""
    orders = [order for group in groups if (order := measure_order(group)) is not None]
    return {"rollout/truth_order": Mean.of(orders)} if orders else {}


def measure_order(group: TrajectoryGroup) -> float | None:
    """Return the share of pairs of members, one truer than the other, of which the truer has the greater credited
    reward (that of the recipe's `[rewards]`, if there are any); equal ones count half. It is (1 + Somers' D) / 2 of the
    reward given the truth, and 1 for any reward that grows with it.

    The truth is the part `TRUTH`; where the recipe's `[rewards]` train and the environment's reward has no such part,
    its total. None without such a pair, and in an episode of several roles: there one's reward may be the other's loss.
    Members that do not learn, have no reward or no truth do not count.
    """
    if len({trajectory.id.role for trajectory in group.trajectories}) > 1:
        return None
    members = [
        (credited, truth)
        for trajectory in group.trajectories
        if trajectory.learns
        if isinstance(trajectory.reward, Scored) and (credited := trajectory.credited) is not None
        if (truth := _find_truth(trajectory, trajectory.reward)) is not None
    ]
    pairs = [
        0.5 if more == less else float(more > less)
        for more, truer in members
        for less, other in members
        if truer > other
    ]
    return fmean(pairs) if pairs else None


def _find_truth(trajectory: Trajectory, reward: Scored) -> float | None:
    truth = reward.part(TRUTH)
    return reward.total if truth is None and trajectory.terms else truth


class TruthWatch:
    """Compares the order in the first groups of the run with that in the latest."""

    def __init__(self) -> None:
        self._drift = Drift(fewest=FEWEST)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold; empty before a group was counted."""
        return {"first": list(self._drift.first), "latest": list(self._drift.latest)} if self._drift.first else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._drift = Drift(list(state.get("first", ())), list(state.get("latest", ())), FEWEST)

    def follow(self, groups: Sequence[TrajectoryGroup]) -> list[str]:
        """Count a step's groups; return an alarm if the order is clearly worse than at the beginning, or below
        `LEAST`."""
        for group in groups:
            if (order := measure_order(group)) is not None:
                self._drift.add(order)
        if not self._drift.has_fallen() and not self._drift.is_below(LEAST):
            return []
        return [
            "alarm: attempts without success are rewarded like those with it, or better, and the policy may be "
            "learning a fault of the reward; see rollout/truth_order, read the best-rewarded attempts that failed, "
            "mend the reward, or take an earlier checkpoint"
        ]
