"""Rewards agreement with the group's answers: the majority's as the label (TTRL), or the share that agrees
(self-consistency)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Invalid, TrajectoryGroup
from turnwise.credit.reward_kind import RewardKind, RewardParts
from turnwise_rewards.unlabelled.answers import AnswerOptions, count_answers, read_voters, spread

Outcome = Literal["label", "tie", "below min_share", "no answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What the attempts at one task voted for."""

    outcome: Outcome
    """"label" if there is one; otherwise why there is none."""
    label: str | None
    """The most common answer; None without a label."""
    share: float
    """Share of the attempts that gave the most common answer; 0 if none gave an answer."""


def count_votes(answers: Sequence[str | None], *, min_share: float = 0.0) -> Vote:
    """Find the label: the one answer that more attempts gave than any other, and at least a share of `min_share` of
    all attempts."""
    ranked = count_answers(answers).most_common(2)
    if not ranked:
        return Vote(outcome="no answer", label=None, share=0.0)
    (answer, count), *second = ranked
    share = count / len(answers)
    if second and second[0][1] == count:
        return Vote(outcome="tie", label=None, share=share)
    if share < min_share:
        return Vote(outcome="below min_share", label=None, share=share)
    return Vote(outcome="label", label=answer, share=share)


class MajorityOptions(AnswerOptions):
    """Options of the majority's vote."""

    min_share: float = Field(0.0, ge=0, le=1)
    """Share of the attempts that the most common answer needs to be the label."""
    undecided: Literal["equal", "invalid"] = "equal"
    """What a group without a label gets. "equal": every attempt the share of the most common answer, so that credit
    within the group finds no difference. "invalid": Invalid, with the reason, which `rollout.max_invalid_share` counts;
    for credit that compares groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MajorityReward:
    """Implements `GroupReward`: 1 for the majority's answer, else 0."""

    options: MajorityOptions

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return one value per member."""
        answers = read_voters(group, self.options)
        vote = count_votes(answers, min_share=self.options.min_share)
        if vote.outcome == "label":
            return spread(group, [float(answer == vote.label) for answer in answers])
        if self.options.undecided == "equal":
            return spread(group, [vote.share] * len(answers))
        reason = f"no label: {vote.outcome}; the most common answer has {vote.share:.0%} of {len(answers)} votes"
        return spread(group, [Invalid(reason=reason, retryable=False)] * len(answers))


class AgreementOptions(AnswerOptions):
    """Options of self-consistency."""

    counts_own: bool = True
    """Whether an attempt counts among those that agree with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementReward:
    """Implements `GroupReward`: the share of the attempts with the same answer."""

    options: AgreementOptions

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return one value per member; Invalid for a single attempt whose own answer does not count."""
        answers = read_voters(group, self.options)
        own = 0 if self.options.counts_own else 1
        if len(answers) == own:
            alone = Invalid(reason="there is no other attempt to agree with", retryable=False)
            return spread(group, [alone] * len(answers))
        counts = count_answers(answers)
        return spread(group, [max(counts[a] - own, 0) / (len(answers) - own) if a else 0.0 for a in answers])


def build_majority(parts: RewardParts) -> MajorityReward:
    """Build the reward of a recipe."""
    return MajorityReward(options=parts.options)


def build_agreement(parts: RewardParts) -> AgreementReward:
    """Build the reward of a recipe."""
    return AgreementReward(options=parts.options)


MAJORITY = RewardKind(
    name="majority",
    summary="1 for the most common answer of the group, else 0; without one, no difference",
    formula="1[answer = most common answer]",
    paper="TTRL, arXiv 2504.16084",
    options=MajorityOptions,
    build=build_majority,
)
SELF_CONSISTENCY = RewardKind(
    name="self_consistency",
    summary="share of the group's attempts with the same answer",
    formula="(attempts with this answer) / (attempts)",
    paper="self-consistency, arXiv 2203.11171, as a reward",
    options=AgreementOptions,
    build=build_agreement,
)
