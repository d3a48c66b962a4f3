"""Whether the reward keeps the order of the truth, where an environment tells the truth beside its reward.

Credit compares attempts at one task, so what it pushes towards is decided by their order. Of two attempts, one true
(its part `success`) and one not, an honest reward pays the true one more. A policy that finds a hole makes untrue
attempts that are paid as much, and then more: the share of pairs in the right order falls while the reward rises, and
before the true success does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from turnwise.core.metrics import Mean, Metric
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.pipeline.drift import Drift

TRUTH = "success"
"""The part of a reward that is the truth."""
HALF = 0.5
"""The truth above which an attempt is true."""
KEPT = 64
"""Latest rewards of true attempts with which groups are compared that have none."""
LEAST = 0.75
"""Share of pairs in the right order below which the reward counts as one that leads away from the truth; 0.5 is a
reward that knows nothing."""

FEWEST = 16
"""Fewest groups that are compared, of the beginning and of the latest; each is the mean over its pairs."""


def compute_truth_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, Metric]:
    """Return `rollout/truth_order`, the mean over groups of `measure_order`; absent if no group has it."""
    orders = [order for group in groups if (order := measure_order(group)) is not None]
    return {"rollout/truth_order": Mean.of(orders)} if orders else {}


def measure_order(group: TrajectoryGroup, elsewhere: Sequence[float] = ()) -> float | None:
    """Return the share of pairs of members, one truer than the other, of which the truer has the greater credited
    reward (that of the recipe's `[rewards]`, if there are any); equal ones count half. It is (1 + Somers' D) / 2 of the
    reward given the truth, and 1 for any reward that grows with it.

    The truth is the part `TRUTH`; where the recipe's `[rewards]` train and the environment's reward has no such part,
    its total. Without such a pair, members that are not true are compared with the rewards of true ones `elsewhere`.
    None if there are neither, and in an episode of several roles: there one's reward may be the other's loss. Members
    that do not learn, have no reward or no truth do not count.
    """
    members = _list_members(group)
    pairs = [(more, less) for more, truer in members for less, other in members if truer > other]
    pairs = pairs or [(more, less) for more in elsewhere for less, truth in members if truth <= HALF]
    return fmean(0.5 if more == less else float(more > less) for more, less in pairs) if pairs else None


def _list_members(group: TrajectoryGroup) -> list[tuple[float, float]]:
    """Return the credited reward and the truth of every member that counts."""
    if len({trajectory.id.role for trajectory in group.trajectories}) > 1:
        return []
    return [
        (credited, truth)
        for trajectory in group.trajectories
        if trajectory.learns
        if isinstance(trajectory.reward, Scored) and (credited := trajectory.credited) is not None
        if (truth := _find_truth(trajectory, trajectory.reward)) is not None
    ]


def _list_true(group: TrajectoryGroup) -> list[float]:
    """Return the credited rewards of the members whose part `TRUTH` says that they are true."""
    true = [t for t in group.trajectories if isinstance(t.reward, Scored) and (t.reward.part(TRUTH) or 0.0) > HALF]
    return [reward for reward, _ in _list_members(replace(group, trajectories=tuple(true)))]


def _find_truth(trajectory: Trajectory, reward: Scored) -> float | None:
    truth = reward.part(TRUTH)
    return reward.total if truth is None and trajectory.terms else truth


class TruthWatch:
    """Compares the order in the first groups of the run with that in the latest. A group in which no attempt is true is
    compared with true attempts at other tasks, once there are `FEWEST`: where success is rare, hardly a group has a
    pair."""

    def __init__(self) -> None:
        self._drift = Drift(fewest=FEWEST)
        self._true: list[float] = []
        """The latest rewards of true attempts."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold; empty before an attempt was counted."""
        if not self._drift.num_seen and not self._true:
            return {}
        return {"order": self._drift.state(), "true": list(self._true)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._drift = Drift.restore(state.get("order", ((), ())), fewest=FEWEST)
        self._true = list(state.get("true", ()))

    def follow(self, groups: Sequence[TrajectoryGroup]) -> list[str]:
        """Count a step's groups; return an alarm if the order is clearly worse than at the beginning, or below
        `LEAST`."""
        for group in groups:
            known = self._true if len(self._true) >= FEWEST else ()
            if (order := measure_order(group, known)) is not None:
                self._drift.add(order)
            self._true += _list_true(group)
            del self._true[:-KEPT]
        if not self._drift.has_fallen() and not self._drift.is_below(LEAST):
            return []
        return [
            "alarm: attempts without success are rewarded like those with it, or better, and the policy may be "
            "learning a fault of the reward; see rollout/truth_order, read the best-rewarded attempts that failed, "
            "mend the reward, or take an earlier checkpoint"
        ]
