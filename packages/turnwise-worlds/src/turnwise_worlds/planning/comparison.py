"""Compare success per number of policy calls: a search, and several plain samples with the same number of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.core.types import IntArray, Scored, Trajectory, TrajectoryGroup, TrajectoryId, to_ids
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.summary import is_right, is_success
from turnwise_worlds.planning.search import Search
from turnwise_worlds.planning.values import Judged, ValueFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One method of answering, at one budget."""

    calls: int
    """Maximum policy calls per task."""
    right: int
    tasks: int

    def to_json(self) -> dict[str, Any]:
        """The arm as plain data, with the success and its 95% Wilson interval."""
        low, high = compute_wilson_interval(self.right, self.tasks)
        success = self.right / max(1, self.tasks)
        return {"calls": self.calls, "success": success, "low": low, "high": high, "tasks": self.tasks}


Pick = Callable[[Sequence[Trajectory]], Trajectory]
"""Chooses the answer among a task's samples."""


def rate_searches(searches: Sequence[Search], budgets: Sequence[int]) -> list[Point]:
    """The success of a search's answers at each budget; a search without an answer counts as a failure."""
    points = []
    for calls in budgets:
        ends = [search.answer_after(calls) for search in searches]
        rewards = [end.place.judged.reward for end in ends if end is not None]
        right = sum(isinstance(reward, Scored) and is_right(reward) for reward in rewards)
        points.append(Point(calls=calls, right=right, tasks=len(searches)))
    return points


def rate_samples(
    groups: Sequence[TrajectoryGroup], pick: Pick, *, budgets: Sequence[int], per_sample: int
) -> list[Point]:
    """The success of the samples that `pick` chooses among the first `budget // per_sample` samples of every task."""
    points = []
    for calls in budgets:
        count = max(1, calls // per_sample)
        right = sum(is_success(pick(group.trajectories[:count])) for group in groups)
        points.append(Point(calls=calls, right=right, tasks=len(groups)))
    return points


def pick_by_scores(scores: Mapping[TrajectoryId, float]) -> Pick:
    """Best-of-n: the sample with the highest score; the first one if there are several."""
    return lambda samples: max(samples, key=lambda sample: scores[sample.id])


def score_ends(groups: Sequence[TrajectoryGroup], value: ValueFunction) -> dict[TrajectoryId, float]:
    """The value function's score for the end of every sample; it must read nothing but tokens."""
    samples = [sample for group in groups for sample in group.trajectories]
    judged = [Judged(token_ids=_join(sample), environment=None, reward=sample.reward) for sample in samples]
    return dict(zip((sample.id for sample in samples), value.score(judged), strict=True))


def pick_most_common(samples: Sequence[Trajectory]) -> Trajectory:
    """Majority: the first sample whose replies, from beginning to end, are the most frequent."""
    texts = [tuple(turn.message.text for turn in sample.turns) for sample in samples]
    [(commonest, _)] = Counter(texts).most_common(1)
    return samples[texts.index(commonest)]


def pick_right(samples: Sequence[Trajectory]) -> Trajectory:
    """pass@n: a right sample if there is one. It reads the reward, so it is a bound and no method of answering."""
    return next((sample for sample in samples if is_success(sample)), samples[0])


def _join(trajectory: Trajectory) -> IntArray:
    """All tokens of a linear trajectory."""
    pieces = [ids for turn in trajectory.turns for ids in (turn.context_ids, turn.completion.token_ids)]
    return to_ids(np.concatenate([to_ids([]), *pieces]))
