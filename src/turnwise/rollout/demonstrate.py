"""Demonstrations: a scripted policy plays real episodes, and its replies become completions to imitate."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Environment, Renderer, ScriptedPolicy
from turnwise.core.types import Completion, Draw, FinishReason, Message, StopReason, Trajectory, TrajectoryId, to_floats
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.loop import close_environment


async def run_demonstration(
    draw: Draw, policy: ScriptedPolicy, environment: Environment, renderer: Renderer, *, seed: int, max_turns: int
) -> Trajectory:
    """One episode of `policy`, with its replies encoded by the renderer. Log-probabilities are NaN: they are unknown.

    Raises EnvironmentFault when the policy has not finished after `max_turns`.
    """
    try:
        trajectory = await _play(draw, policy, environment, renderer, seed, max_turns)
    finally:
        problem = await close_environment(environment)
    return replace(trajectory, error=problem)


async def _play(
    draw: Draw, policy: ScriptedPolicy, environment: Environment, renderer: Renderer, seed: int, max_turns: int
) -> Trajectory:
    rng, task = Random(seed), draw.task
    conversation = Conversation(renderer=renderer)
    opening = await environment.reset(task, seed)
    messages: list[Message] = list(opening.messages)
    conversation.open(opening.messages, opening.tools)
    for _ in range(max_turns):
        reply = policy.reply(task, messages, rng)
        token_ids = renderer.encode_reply(reply)
        completion = Completion(
            token_ids=token_ids,
            logprobs=to_floats(np.full(len(token_ids), np.nan)),
            finish_reason=FinishReason.STOP,
            version_first=0,
            version_last=0,
        )
        conversation.append(completion, reply)
        result = await environment.step(reply)
        conversation.observe(result)
        if result.done:
            return Trajectory(
                id=TrajectoryId(draw=draw.index, member=0),
                task_id=task.id,
                turns=tuple(conversation.turns),
                stop=StopReason.DONE,
                reward=await environment.score(conversation.replies, StopReason.DONE),
            )
        messages += [reply, *result.observations]
    raise EnvironmentFault(
        f"policy {type(policy).__name__} did not finish task {task.id} within {max_turns} turns; "
        "raise rollout.max_turns"
    )
