"""The rewards of a recipe's `[rewards]`, which see all attempts at a task together, for scripted attempts.

A scripted attempt has no sampled tokens: its "tokens" are the bytes of its replies, so that lengths mean something, and
rewards that ask the policy for probabilities cannot be computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    Invalid,
    Message,
    StopReason,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    to_floats,
    to_ids,
)
from turnwise.credit.terms import TermAnnotator
from turnwise_rewards.redteam.play import Bout


async def reward_group(rewards: Sequence[TermAnnotator], bouts: Sequence[Bout], role: str) -> list[Trajectory]:
    """Return a role's attempts at one task as trajectories with the terms of the rewards, in order.

    Raises what a reward raises; in a run that would make the group Invalid.
    """
    members = tuple(_to_trajectory(bout, role, number) for number, bout in enumerate(bouts))
    group = TrajectoryGroup(draw=Draw(index=0, task=bouts[0].task), trajectories=members, role=role)
    for reward in rewards:
        group = await reward.annotate(group)
    return list(group.trajectories)


def _to_trajectory(bout: Bout, role: str, member: int) -> Trajectory:
    last: dict[str, int] = {}
    names: dict[str, int] = {}
    turns = []
    for number, replied in enumerate(bout.replies.get(role, ())):
        observed = [
            message
            for ask in replied.asked.asks
            if ask.conversation == replied.conversation
            for message in ask.messages
        ]
        turns.append(
            Turn(
                parent=last.get(replied.conversation),
                context_ids=to_ids([]),
                completion=_to_completion(replied.message),
                message=replied.message,
                observations=(*replied.asked.observations, *observed),
                tool_records=replied.asked.tool_records,
                scores=replied.asked.scores,
                signals=replied.asked.signals,
                conversation=names.setdefault(replied.conversation, len(names)),
            )
        )
        last[replied.conversation] = number
    reward = bout.rewards.get(role, Invalid(reason="the role was not asked", retryable=False))
    return Trajectory(
        id=TrajectoryId(draw=0, member=member, role=role),
        task_id=bout.task.id,
        turns=tuple(turns),
        stop=StopReason.DONE,
        reward=reward,
        judgements=bout.judgements,
    )


def _to_completion(message: Message) -> Completion:
    written = message.text + "".join(f"{call.name}{call.arguments}" for call in message.tool_calls)
    ids = list(written.encode("utf-8", "replace")) or [0]
    return Completion(
        token_ids=to_ids(ids),
        logprobs=to_floats([float("nan")] * len(ids)),
        finish_reason=FinishReason.STOP,
        version_first=0,
        version_last=0,
    )
