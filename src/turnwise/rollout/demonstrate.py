"""Demonstrations: a scripted policy plays real episodes, and its replies become completions to imitate."""

from __future__ import annotations

from random import Random

import numpy as np

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Environment, Renderer, ScriptedPolicy
from turnwise.core.types import Completion, FinishReason, Message, StopReason, Task, Trajectory, Turn, to_floats, to_ids


async def run_demonstration(
    task: Task, policy: ScriptedPolicy, environment: Environment, renderer: Renderer, *, seed: int, max_turns: int
) -> Trajectory:
    """One episode of `policy`, with its replies encoded by the renderer. Log-probabilities are NaN: nobody sampled
    them.

    Raises EnvironmentFault when the policy has not finished after `max_turns`.
    """
    rng = Random(seed)
    opening = await environment.reset(task, seed)
    messages: list[Message] = list(opening.messages)
    replies: list[Message] = []
    turns: list[Turn] = []
    context_ids = prompt_ids = renderer.open(opening.messages, opening.tools)
    try:
        for _ in range(max_turns):
            reply = policy.reply(task, messages, rng)
            token_ids = renderer.encode_reply(reply)
            result = await environment.step(reply)
            replies.append(reply)
            completion = Completion(
                token_ids=token_ids,
                logprobs=to_floats(np.full(len(token_ids), np.nan)),
                finish_reason=FinishReason.STOP,
                version_first=0,
                version_last=0,
            )
            turns.append(
                Turn(
                    parent=len(turns) - 1 if turns else None,
                    context_ids=context_ids,
                    completion=completion,
                    message=reply,
                    observations=result.observations,
                    tool_records=result.tool_records,
                )
            )
            if result.done:
                reward = await environment.score(replies, StopReason.DONE)
                return Trajectory(
                    task_id=task.id,
                    group_id=f"demonstration/{task.id}",
                    member=0,
                    turns=tuple(turns),
                    stop=StopReason.DONE,
                    reward=reward,
                )
            messages += [reply, *result.observations]
            context_ids = renderer.extend(prompt_ids, token_ids, result.observations, opening.tools)
            prompt_ids = to_ids(np.concatenate([prompt_ids, token_ids, context_ids]))
    finally:
        await environment.close()
    raise EnvironmentFault(
        f"policy {type(policy).__name__} did not finish task {task.id} within {max_turns} turns; raise "
        "rollout.max_turns"
    )
