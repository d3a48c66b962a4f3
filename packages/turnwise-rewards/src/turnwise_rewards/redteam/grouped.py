"""The reward that trains, for scripted attempts: the environment's or that of the recipe's `[rewards]`, shaped as
`credit.shaping` says. These see all attempts at a task together.

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
from turnwise.credit.shaping import compute_shaped_rewards
from turnwise_rewards.redteam.play import Arena, Bout
from turnwise_rewards.redteam.verdict import Outcome


async def read_group(arena: Arena, bouts: Sequence[Bout], role: str) -> list[Outcome]:
    """Return what a role got for each of its attempts at one task, in order.

    Raises what a reward raises; in a run that would make the group Invalid.
    """
    members = tuple(_to_trajectory(bout, role, number) for number, bout in enumerate(bouts))
    group = TrajectoryGroup(draw=Draw(index=0, task=bouts[0].task), trajectories=members, role=role)
    for reward in arena.rewards:
        group = await reward.annotate(group)
    shaped = compute_shaped_rewards(group, arena.shaping)
    return [Outcome.of(each.reward, credited) for each, credited in zip(group.trajectories, shaped, strict=True)]


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
