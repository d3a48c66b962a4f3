"""The control of every reward: a coin that knows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.config.section import Section
from turnwise.core.judging import EpisodeJudges
from turnwise.core.seeds import rng
from turnwise.core.types import Invalid, TrajectoryGroup
from turnwise.credit.reward_kind import RewardKind, RewardParts
from turnwise.environments.arguments import Share


class CoinOptions(Section):
    """Options of the coin."""

    probability: Share = 0.5
    """Of 1; else the value is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinReward:
    """Implements `GroupReward`: 1 or 0, drawn for each attempt from the run's seed and the attempt's name."""

    seed: int
    probability: float

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return one value per member."""
        return [float(rng(self.seed, str(t.id)).random() < self.probability) for t in group.trajectories]


def build_coin(parts: RewardParts) -> CoinReward:
    """Build the reward of a recipe."""
    return CoinReward(seed=parts.seed, probability=parts.options.probability)


COIN = RewardKind(
    name="coin",
    summary="1 or 0 at random: what any other reward must beat at equal steps",
    formula="Bernoulli(probability)",
    paper="the control of Spurious Rewards, arXiv 2506.10947",
    options=CoinOptions,
    build=build_coin,
)
