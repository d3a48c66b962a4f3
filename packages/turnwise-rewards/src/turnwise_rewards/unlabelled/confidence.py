"""Rewards the policy's own confidence in what it wrote: low entropy (RENT), high self-certainty (Intuitor)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from turnwise.batching.samples import to_samples
from turnwise.config.section import Section
from turnwise.core.judging import EpisodeJudges
from turnwise.core.paths import take_trained
from turnwise.core.types import Invalid, Scored, TrajectoryGroup
from turnwise.credit.annotator_kind import ScoreSamples
from turnwise.credit.reward_kind import RewardKind, RewardParts

NOISE = 1e-5
"""Attempts whose values differ by fewer nats are equally sure: this is float32's arithmetic, of which credit that
divides by the group's standard deviation would make a signal."""


class ConfidenceOptions(Section):
    """Options of both."""

    last_share: float = Field(1.0, gt=0, le=1)
    """Share of an attempt's sampled tokens that counts: its last ones."""


def average_last(values: NDArray[Any], last_share: float) -> float:
    """Return the mean of the last share of the values, of at least one."""
    count = max(1, math.ceil(last_share * len(values) - 1e-9))
    return float(np.mean(values[-count:], dtype=np.float64))


def join_close(values: Sequence[float]) -> list[float]:
    """Give values that follow each other within `NOISE` their common mean."""
    joined, run = list(values), list[int]()
    for index in sorted(range(len(values)), key=values.__getitem__):
        if run and values[index] - values[run[-1]] > NOISE:
            run = []
        run.append(index)
        mean = math.fsum(values[i] for i in run) / len(run)
        for i in run:
            joined[i] = mean
    return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceReward:
    """Implements `GroupReward`: the mean over an attempt's sampled tokens of a measure of the distribution that each
    was drawn from."""

    column: Literal["policy_entropy", "self_certainty"]
    sign: Literal[1, -1]
    options: ConfidenceOptions
    score_samples: ScoreSamples

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return one value per member; Invalid for one without a sampled token that trains."""
        samples = {
            t.id: to_samples(take_trained(t)) if isinstance(t.reward, Scored) else [] for t in group.trajectories
        }
        columns = iter(await self.score_samples([each for of in samples.values() for each in of], self.column))
        tokens = {name: [next(columns) for _ in of] for name, of in samples.items()}
        measured = {name: np.concatenate(arrays) for name, arrays in tokens.items() if arrays}
        means = [self.sign * average_last(each, self.options.last_share) for each in measured.values()]
        values = dict(zip(measured, join_close(means), strict=True))
        nothing = Invalid(reason="no sampled token trains, so none has a confidence", retryable=False)
        return [
            each.reward if isinstance(each.reward, Invalid) else values.get(each.id, nothing)
            for each in group.trajectories
        ]


def build_entropy(parts: RewardParts) -> ConfidenceReward:
    """Build RENT's reward of a recipe."""
    return ConfidenceReward(column="policy_entropy", sign=-1, options=parts.options, score_samples=parts.score)


def build_self_certainty(parts: RewardParts) -> ConfidenceReward:
    """Build Intuitor's reward of a recipe."""
    return ConfidenceReward(column="self_certainty", sign=1, options=parts.options, score_samples=parts.score)


ENTROPY = RewardKind(
    name="entropy",
    summary="minus the mean entropy of the policy at the attempt's sampled tokens",
    formula="-mean over tokens of H(p)",
    paper="RENT, arXiv 2505.22660",
    options=ConfidenceOptions,
    build=build_entropy,
)
SELF_CERTAINTY = RewardKind(
    name="self_certainty",
    summary="mean divergence of the uniform distribution from the policy at the attempt's sampled tokens",
    formula="mean over tokens of KL(U || p) = -log V - mean over the vocabulary of log p",
    paper="Intuitor, arXiv 2505.19590",
    options=ConfidenceOptions,
    build=build_self_certainty,
)
