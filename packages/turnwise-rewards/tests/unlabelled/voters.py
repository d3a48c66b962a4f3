"""Attempts that say what a test wants, for tests of rewards without labels."""

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.config.rewards import RewardSection
from turnwise.core.judging import EpisodeJudges
from turnwise.core.rewards import GroupReward
from turnwise.core.types import Trajectory, TrajectoryGroup, text_message
from turnwise.credit.reward_kind import RewardKind, RewardParts
from turnwise.credit.reward_table import build_reward
from turnwise.testing.builders import make_group, make_trajectory, make_turn


def make_voter(member: int, text: str, *, reward: float | None = 0.0, **fields: Any) -> Trajectory:
    """An attempt with one reply; `reward` None: it could not be scored."""
    turn = make_turn([1, 2], [3, 4], message=text_message("assistant", text))
    return make_trajectory(turn, member=member, reward=reward, **fields)


def make_votes(*answers: str | None, rewards: Mapping[int, float | None] | None = None) -> TrajectoryGroup:
    """A group whose members answer this, None without an answer; rewards of the environment by member, 0 if not
    given."""
    given = rewards or {}
    return make_group(
        *(
            make_voter(i, "hm" if answer is None else f"<answer> {answer} </answer>", reward=given.get(i, 0.0))
            for i, answer in enumerate(answers)
        )
    )


def build(kind: RewardKind, score: Any = None, **options: Any) -> GroupReward:
    """The reward as a recipe builds it."""
    nothing: Any = None
    section = RewardSection(kind=kind.name, options=options)
    parts = RewardParts(
        name="given", options=options, family=nothing, renderer=nothing, score=score, tokenizer=nothing, seed=7
    )
    return build_reward(section, kind, parts)


async def ask(reward: GroupReward, group: TrajectoryGroup) -> Sequence[Any]:
    """The values that a reward gives."""
    return await reward.score(group, EpisodeJudges({}))
