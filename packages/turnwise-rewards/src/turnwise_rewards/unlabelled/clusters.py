"""Rewards large clusters of equal answers, where their entropy is within bounds (EMPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import model_validator

from turnwise.core.errors import ConfigError
from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Invalid, TrajectoryGroup
from turnwise.credit.reward_kind import RewardKind, RewardParts
from turnwise.environments.arguments import Share
from turnwise_rewards.unlabelled.answers import (
    AnswerOptions,
    compute_cluster_entropy,
    count_answers,
    read_voters,
    spread,
)


class ClusterOptions(AnswerOptions):
    """Options of the entropy of clusters."""

    value: Literal["frequency", "log"] = "frequency"
    """Value of an attempt: the share p of its cluster, or log p, whose mean over the group is minus the entropy."""
    min_entropy: Share = 0.0
    """Lowest entropy of a group that is rewarded, as a share of the highest possible, log(attempts)."""
    max_entropy: Share = 1.0
    """Highest entropy of a group that is rewarded, as such a share. Outside the bounds every attempt gets the group's
    mean, so that credit within the group finds no difference."""

    @model_validator(mode="after")
    def _check_bounds(self) -> ClusterOptions:
        if self.min_entropy > self.max_entropy:
            raise ConfigError(
                f"min_entropy={self.min_entropy:g} is above max_entropy={self.max_entropy:g}; exchange them"
            )
        return self


def compute_cluster_values(answers: Sequence[str | None], options: ClusterOptions) -> list[float]:
    """Return the value of every attempt."""
    counts, total = count_answers(answers), len(answers)
    shares = [(1 if answer is None else counts[answer]) / total for answer in answers]
    values = [math.log(share) for share in shares] if options.value == "log" else shares
    entropy, highest = compute_cluster_entropy(answers), math.log(total) if total else 0.0
    slack = 1e-9  # the entropy of attempts that all differ is log(attempts), up to rounding
    if options.min_entropy * highest - slack <= entropy <= options.max_entropy * highest + slack:
        return values
    return [math.fsum(values) / total] * total


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReward:
    """Implements `GroupReward`."""

    options: ClusterOptions

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return one value per member."""
        return spread(group, compute_cluster_values(read_voters(group, self.options), self.options))


def build_clusters(parts: RewardParts) -> ClusterReward:
    """Build the reward of a recipe."""
    return ClusterReward(options=parts.options)


CLUSTER_ENTROPY = RewardKind(
    name="cluster_entropy",
    summary="share of the cluster of equal answers, where the entropy of the clusters is within bounds",
    formula="p(cluster), or log p(cluster)",
    paper="EMPO, arXiv 2504.05812",
    options=ClusterOptions,
    build=build_clusters,
)
