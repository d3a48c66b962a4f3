"""Build small trajectories and groups by hand: everything that a test does not care about has a default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    Invalid,
    Reward,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    text_message,
    to_floats,
    to_ids,
)


def make_task(text: str = "question", *, environment: str = "none", **payload: Any) -> Task:
    """A task whose prompt is one user message; `payload` contains what its environment needs."""
    return Task(environment=environment, prompt=(text_message("user", text),), payload=payload)


def make_completion(
    token_ids: Sequence[int],
    *,
    logprobs: Sequence[float] | None = None,
    version: int = 0,
    finish_reason: FinishReason = FinishReason.STOP,
) -> Completion:
    """A reply with these tokens, each with log-probability -1 unless `logprobs` says otherwise, sampled by
    `version`."""
    return Completion(
        token_ids=to_ids(token_ids),
        logprobs=to_floats([-1.0] * len(token_ids) if logprobs is None else logprobs),
        finish_reason=finish_reason,
        version_first=version,
        version_last=version,
    )


def make_turn(
    context: Sequence[int], reply: Sequence[int] | Completion, *, parent: int | None = None, **fields: Any
) -> Turn:
    """A reply, given as token ids or as a completion, to the tokens of `context`; `fields` are further fields of
    `Turn`."""
    completion = reply if isinstance(reply, Completion) else make_completion(reply)
    fields = {"message": text_message("assistant", ""), **fields}
    return Turn(parent=parent, context_ids=to_ids(context), completion=completion, **fields)


def make_trajectory(
    *turns: Turn, reward: float | Reward | None = 1.0, member: int = 0, draw: int = 0, **fields: Any
) -> Trajectory:
    """An attempt that the environment ended; a `reward` of None means that it could not be scored.

    `fields` are further fields of `Trajectory`, such as `task_id`, `stop` and `endings`."""
    if reward is None:
        reward = Invalid(reason="crash", retryable=False)
    elif isinstance(reward, float | int):
        reward = Scored(total=float(reward))
    fields = {"task_id": make_task().id, "stop": StopReason.DONE, **fields}
    return Trajectory(id=TrajectoryId(draw=draw, member=member), turns=turns, reward=reward, **fields)


def make_group(*trajectories: Trajectory, task: Task | None = None, **fields: Any) -> TrajectoryGroup:
    """The group of the first trajectory's draw (draw 0 without trajectories); `fields` are further fields of
    `TrajectoryGroup`."""
    index = trajectories[0].id.draw if trajectories else 0
    return TrajectoryGroup(
        draw=Draw(index=index, task=make_task() if task is None else task), trajectories=trajectories, **fields
    )
