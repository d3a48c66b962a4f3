"""The counterfactual of a call: how much less likely the last reply is without it, asked of the policy itself.

Invites calls that make a wrong answer likely as well as those that make a right one likely: it measures that the reply
rests on the call, not that it is right. `credit.shaping.gate` closes it where nothing was solved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import (
    Invalid,
    Origin,
    Sample,
    Scored,
    Trajectory,
    TrajectoryGroup,
    Turn,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.credit.annotator_kind import ScoreSamples
from turnwise.credit.reward_kind import RewardKind


class CounterfactualOptions(Section):
    """Options of the part `counterfactual`."""

    factor: float = Field(2.0, gt=1)
    """A call counts if the last reply is at least this many times as likely with it as without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterfactualReward:
    """Implements `GroupReward`: the share of turns with calls without which the last reply would be less likely.

    For each turn that calls, the policy reads the conversation once more without the turn's reply and what answered it,
    and tells the log-probability of the last reply there: `log P(last | all) - log P(last | without) >= log factor`
    counts. Calls of one reply are left out together. What remains is a conversation as it could have been sampled,
    since a turn's reply and the context after it go together. Later calls stay, even those that an absent call led to.
    The weights are those that sampled, or newer ones (`RewardParts.score`). 0 without calls.

    One forward pass per turn with calls, and one more per member.
    """

    score_samples: ScoreSamples
    factor: float

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return the shares; Invalid for a trajectory of several conversations or branches, which has no one past to
        leave a turn out of."""
        calling = [_find_calls(member) for member in group.trajectories]
        samples: list[Sample] = []
        for member, turns in zip(group.trajectories, calling, strict=True):
            if turns:
                samples += [_flatten(member, left_out) for left_out in (None, *turns)]
        scored = await self.score_samples(samples) if samples else []
        sums = iter([float(np.sum(found, dtype=np.float64)) for found in scored])
        values: list[float | Invalid] = []
        for member, turns in zip(group.trajectories, calling, strict=True):
            if turns is None:
                values.append(Invalid(reason=f"trajectory {member.id} is no single conversation", retryable=False))
                continue
            full = next(sums) if turns else 0.0
            counted = sum(full - next(sums) >= math.log(self.factor) for _ in turns)
            values.append(counted / len(turns) if turns else 0.0)
        return values


def _find_calls(member: Trajectory) -> list[int] | None:
    """Return the turns with calls before the last turn; none for a member that could not be scored, None for one that
    is no single conversation."""
    if not isinstance(member.reward, Scored):
        return []
    if any(turn.parent != (at - 1 if at else None) for at, turn in enumerate(member.turns)):
        return None
    return [at for at, turn in enumerate(member.turns[:-1]) if turn.tool_records]


def _flatten(member: Trajectory, left_out: int | None) -> Sample:
    """Return the conversation without a turn's reply and the context after it; only the last reply is scored."""
    pieces = [member.turns[0].context_ids]
    images = list(member.turns[0].images)
    for before, after in zip(member.turns, member.turns[1:], strict=False):
        if left_out is None or before is not member.turns[left_out]:
            start = sum(map(len, pieces)) + len(before.completion.token_ids)
            images += [span.shift(start) for span in after.images]
            pieces += [before.completion.token_ids, after.context_ids]
    last: Turn = member.turns[-1]
    reply = last.completion.token_ids
    token_ids = to_ids(np.concatenate([*pieces, reply]))
    mask = np.zeros(len(token_ids), np.bool_)
    mask[len(token_ids) - len(reply) :] = True
    zeros = to_floats(np.zeros(len(token_ids)))
    return Sample(
        token_ids=token_ids,
        loss_mask=to_mask(mask),
        behavior_logprobs=zeros,
        advantages=zeros,
        version_first=last.completion.version_first,
        version_last=last.completion.version_last,
        origin=Origin(trajectory=member.id, task_id=member.task_id),
        images=tuple(images),
    )


COUNTERFACTUAL = RewardKind(
    name="counterfactual",
    summary="share of calls without which the last reply would be less likely",
    formula="turns with log P(last | all) - log P(last | without the turn) >= log factor / turns with calls; 0 without",
    options=CounterfactualOptions,
    build=lambda parts: CounterfactualReward(score_samples=parts.score, factor=parts.options.factor),
)
