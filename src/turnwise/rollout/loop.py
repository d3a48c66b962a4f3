"""The life of one trajectory: open, then reply and observe until something stops it, score, close.

The one place where tokens and text meet. It owns the limits and the stop reasons; retries belong to `group`, disks to the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnwise.core.errors import EnvironmentFault, ToolTimeout, boundary
from turnwise.core.protocols import Engine, Environment, Renderer, StatefulEnvironment
from turnwise.core.seeds import derive_seed
from turnwise.core.types import (
    FinishReason,
    IntArray,
    Invalid,
    Reward,
    SamplingParams,
    StopReason,
    Task,
    ToolSpec,
    Trajectory,
    Turn,
    to_ids,
)
from turnwise.rollout.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How replies are drawn, and the seed everything random in the rollout derives from."""

    temperature: float
    top_p: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Which trajectory this is."""

    task: Task
    group_id: str
    member: int
    number: int = 0
    """0 for the first try, 1 for the first retry."""

    def seed(self, run_seed: int, *path: int | str) -> int:
        """A seed that depends on the run, the group, the member, the attempt and `path`; never on time or order."""
        return derive_seed(run_seed, self.group_id, self.task.id, self.member, self.number, *path)


async def run_trajectory(
    attempt: Attempt, environment: Environment, engine: Engine, renderer: Renderer, limits: Limits, sampling: Sampling
) -> Trajectory:
    """Run one attempt to its end and score it. Never raises: a failure is a trajectory with an Invalid reward.

    A group shares its environment seed, so that its members face the same episode and differ by what they sample.
    """
    turns: list[Turn] = []
    session = f"{attempt.group_id}/{attempt.member}/{attempt.number}"
    error: str | None = None
    try:
        async with asyncio.timeout(limits.timeout_s):
            stop, reward = await _play(attempt, environment, engine, renderer, limits, sampling, turns, session)
    except ToolTimeout as cause:
        stop, reward, error = StopReason.TOOL_TIMEOUT, Invalid(reason=str(cause), retryable=True), f"ToolTimeout: {cause}"
    except Exception as cause:  # noqa: BLE001 - the supervisor: a failed trajectory is data, the run goes on
        detail = f"ran past rollout.trajectory_timeout_s={limits.timeout_s}" if isinstance(cause, TimeoutError) else str(cause)
        stop, error = StopReason.ERROR, f"{type(cause).__name__}: {detail}"
        reward = Invalid(reason=error, retryable=True)
    finally:
        await engine.release(session)
        error = await _close(environment) or error
    if isinstance(reward, Invalid) and error is None:
        error = reward.reason
    return Trajectory(
        task_id=attempt.task.id,
        group_id=attempt.group_id,
        member=attempt.member,
        turns=tuple(turns),
        stop=stop,
        reward=reward,
        error=error,
        attempt=attempt.number,
    )


async def _play(
    attempt: Attempt,
    environment: Environment,
    engine: Engine,
    renderer: Renderer,
    limits: Limits,
    sampling: Sampling,
    turns: list[Turn],
    session: str,
) -> tuple[StopReason, Reward]:
    """Append to `turns` until a stop reason, then score."""
    with boundary(EnvironmentFault, f"reset of environment {attempt.task.environment!r} for task {attempt.task.id}"):
        opening = await environment.reset(attempt.task, derive_seed(sampling.seed, "environment", attempt.group_id, attempt.task.id))
    prompt_ids = context_ids = renderer.open(opening.messages, opening.tools)
    stop: StopReason | None = None
    while stop is None:
        room = limits.before_reply(num_turns=len(turns), num_tokens=len(prompt_ids))
        if isinstance(room, StopReason):
            stop = room
            if not turns:
                reason = (
                    f"the opening of task {attempt.task.id} has {len(prompt_ids)} tokens and leaves no room for a reply in "
                    f"rollout.max_tokens={limits.max_tokens}; shorten the task, or raise rollout.max_tokens and engine.max_context"
                )
                return stop, Invalid(reason=reason, retryable=False)
            break
        params = SamplingParams(
            max_tokens=room,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            stop=renderer.stop,
            stop_token_ids=renderer.stop_token_ids,
            seed=attempt.seed(sampling.seed, "turn", len(turns)),
        )
        state = _state(environment, attempt.task)
        started = time.perf_counter()
        completion = await engine.generate(prompt_ids, params, session=session)
        engine_s = time.perf_counter() - started
        message = renderer.parse(prompt_ids, completion.token_ids)
        turns.append(
            Turn(
                parent=len(turns) - 1 if turns else None,
                context_ids=context_ids,
                completion=completion,
                message=message,
                state=state,
                engine_s=engine_s,
            )
        )
        if completion.finish_reason is FinishReason.LENGTH:
            stop = StopReason.MAX_TURN_TOKENS if room == limits.max_turn_tokens else StopReason.MAX_TOKENS
            break
        started = time.perf_counter()
        with boundary(EnvironmentFault, f"step of environment {attempt.task.environment!r} for task {attempt.task.id}"):
            result = await environment.step(message)
        turns[-1] = replace(
            turns[-1],
            observations=result.observations,
            tool_records=result.tool_records,
            signals=result.signals,
            environment_s=time.perf_counter() - started,
        )
        if result.done:
            stop = StopReason.DONE
        else:
            context_ids = _extend(renderer, prompt_ids, turns[-1], opening.tools)
            prompt_ids = to_ids([*prompt_ids.tolist(), *completion.token_ids.tolist(), *context_ids.tolist()])
    with boundary(EnvironmentFault, f"score of environment {attempt.task.environment!r} for task {attempt.task.id}"):
        return stop, await environment.score([turn.message for turn in turns], stop)


def _state(environment: Environment, task: Task) -> str | None:
    """The hash of the state a reply is about to be sampled in; None where the environment gives none."""
    if not isinstance(environment, StatefulEnvironment):
        return None
    with boundary(EnvironmentFault, f"state_hash of environment {task.environment!r} for task {task.id}"):
        return environment.state_hash()


def _extend(renderer: Renderer, prompt_ids: IntArray, turn: Turn, tools: Sequence[ToolSpec]) -> IntArray:
    if not turn.observations:
        raise EnvironmentFault("the environment neither ended the episode nor observed anything; return observations or done=True")
    return renderer.extend(prompt_ids, turn.completion.token_ids, turn.observations, tools)


async def _close(environment: Environment) -> str | None:
    """Close and return what went wrong, if anything."""
    try:
        with boundary(EnvironmentFault, "closing the environment"):
            await environment.close()
    except EnvironmentFault as cause:
        return f"EnvironmentFault: {cause}"
    return None
