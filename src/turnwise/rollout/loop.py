"""The life of one trajectory: open, then reply and observe until something stops it, score, close.

The one place where tokens and text meet. It owns the limits and the stop reasons; retries belong to `group`, disks to
the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.core.errors import EnvironmentFault, ToolTimeout, boundary
from turnwise.core.protocols import Engine, Environment, Renderer, StatefulEnvironment
from turnwise.core.seeds import derive_seed
from turnwise.core.types import (
    FinishReason,
    Grammar,
    IntArray,
    Invalid,
    Message,
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
    top_k: int = 0
    """0 keeps all tokens."""
    min_p: float = 0.0
    """0 keeps all tokens."""
    build_grammar: Callable[[Sequence[ToolSpec]], Grammar] | None = None
    """What replies may be, given the tools on offer; None, and a conversation without tools, allow everything."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Position:
    """Where the next reply is about to be sampled: what it is conditioned on."""

    tools: tuple[ToolSpec, ...]
    prompt_ids: IntArray
    """The whole conversation so far."""
    context_ids: IntArray
    """Its end: what was appended since the last reply."""
    replies: tuple[Message, ...]


Visit = Callable[[Position, Environment], Awaitable[None]]
"""Told of every position before its reply is sampled."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fork:
    """Start in the middle: at `position`, in an environment that is there already."""

    number: int
    """Of the branch in its trajectory, from 1: names its random numbers and its cache."""
    position: Position


async def run_trajectory(
    attempt: Attempt,
    environment: Environment,
    engine: Engine,
    renderer: Renderer,
    limits: Limits,
    sampling: Sampling,
    *,
    fork: Fork | None = None,
    visit: Visit | None = None,
) -> Trajectory:
    """Run one attempt to its end and score it. Never raises: a failure is a trajectory with an Invalid reward.

    A group shares its environment seed, so that its members face the same episode and differ by what they sample. With
    `fork` the turns are those sampled after it, and the environment is not reset."""
    turns: list[Turn] = []
    session = f"{attempt.group_id}/{attempt.member}/{attempt.number}" + (f".{fork.number}" if fork else "")
    play = _Play(
        attempt=attempt,
        engine=engine,
        renderer=renderer,
        limits=limits,
        sampling=sampling,
        session=session,
        fork=fork,
        visit=visit,
    )
    error: str | None = None
    try:
        async with asyncio.timeout(limits.timeout_s):
            stop, reward = await play.run(environment, turns)
    except ToolTimeout as cause:
        stop, reward, error = (
            StopReason.TOOL_TIMEOUT,
            Invalid(reason=str(cause), retryable=True),
            f"ToolTimeout: {cause}",
        )
    except Exception as cause:  # noqa: BLE001 - the supervisor: a failed trajectory is data, the run goes on
        detail = (
            f"ran past rollout.trajectory_timeout_s={limits.timeout_s}"
            if isinstance(cause, TimeoutError)
            else str(cause)
        )
        stop, error = StopReason.ERROR, f"{type(cause).__name__}: {detail}"
        reward = Invalid(reason=error, retryable=True)
    finally:
        await engine.release(session)
        error = await close_environment(environment) or error
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Play:
    """What does not change while one trajectory is played."""

    attempt: Attempt
    engine: Engine
    renderer: Renderer
    limits: Limits
    sampling: Sampling
    session: str
    fork: Fork | None
    visit: Visit | None

    async def run(self, environment: Environment, turns: list[Turn]) -> tuple[StopReason, Reward]:
        """Append to `turns` until a stop reason, then score."""
        position = self.fork.position if self.fork is not None else await self._open(environment)
        stop: StopReason | None = None
        while stop is None:
            room = self.limits.before_reply(num_turns=len(position.replies), num_tokens=len(position.prompt_ids))
            if isinstance(room, StopReason):
                if not position.replies:
                    return room, self._too_long(position)
                stop = room
                break
            if self.visit is not None:
                await self.visit(position, environment)
            turn = await self._reply(position, environment, room, parent=len(turns) - 1 if turns else None)
            turns.append(turn)
            replies = (*position.replies, turn.message)
            position = replace(position, replies=replies)
            if turn.completion.finish_reason is FinishReason.LENGTH:
                stop = StopReason.MAX_TURN_TOKENS if room == self.limits.max_turn_tokens else StopReason.MAX_TOKENS
                break
            turns[-1], done = await self._step(turn, environment)
            if done:
                stop = StopReason.DONE
            else:
                context_ids = _extend(self.renderer, position.prompt_ids, turns[-1], position.tools)
                prompt_ids = to_ids(np.concatenate([position.prompt_ids, turn.completion.token_ids, context_ids]))
                position = replace(position, prompt_ids=prompt_ids, context_ids=context_ids)
        with boundary(EnvironmentFault, f"score of {self._where}"):
            return stop, await environment.score(position.replies, stop)

    @property
    def _where(self) -> str:
        return f"environment {self.attempt.task.environment!r} for task {self.attempt.task.id}"

    async def _open(self, environment: Environment) -> Position:
        attempt = self.attempt
        with boundary(EnvironmentFault, f"reset of {self._where}"):
            seed = derive_seed(self.sampling.seed, "environment", attempt.group_id, attempt.task.id)
            opening = await environment.reset(attempt.task, seed)
        prompt_ids = self.renderer.open(opening.messages, opening.tools)
        return Position(tools=tuple(opening.tools), prompt_ids=prompt_ids, context_ids=prompt_ids, replies=())

    def _too_long(self, position: Position) -> Invalid:
        reason = (
            f"the opening of task {self.attempt.task.id} has {len(position.prompt_ids)} tokens and leaves no room "
            "for a reply in "
            f"rollout.max_tokens={self.limits.max_tokens}; shorten the task, or raise rollout.max_tokens and "
            "engine.max_context"
        )
        return Invalid(reason=reason, retryable=False)

    async def _reply(self, position: Position, environment: Environment, room: int, *, parent: int | None) -> Turn:
        """Sample and parse the next reply."""
        path = ("branch", self.fork.number) if self.fork is not None else ()
        build_grammar = self.sampling.build_grammar
        params = SamplingParams(
            max_tokens=room,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            top_k=self.sampling.top_k,
            min_p=self.sampling.min_p,
            grammar=build_grammar(position.tools) if build_grammar is not None and position.tools else None,
            stop=self.renderer.stop,
            stop_token_ids=self.renderer.stop_token_ids,
            seed=self.attempt.seed(self.sampling.seed, *path, "turn", len(position.replies)),
        )
        state = _state(environment, self.attempt.task)
        started = time.perf_counter()
        completion = await self.engine.generate(position.prompt_ids, params, session=self.session)
        return Turn(
            parent=parent,
            context_ids=position.context_ids,
            completion=completion,
            engine_s=time.perf_counter() - started,
            message=self.renderer.parse(position.prompt_ids, completion.token_ids),
            state=state,
        )

    async def _step(self, turn: Turn, environment: Environment) -> tuple[Turn, bool]:
        """The turn with what the environment answered to it, and whether the episode is over."""
        started = time.perf_counter()
        with boundary(EnvironmentFault, f"step of {self._where}"):
            result = await environment.step(turn.message)
        answered = replace(
            turn,
            observations=result.observations,
            tool_records=result.tool_records,
            signals=result.signals,
            environment_s=time.perf_counter() - started,
        )
        return answered, result.done


def _state(environment: Environment, task: Task) -> str | None:
    """The hash of the state a reply is about to be sampled in; None where the environment gives none."""
    if not isinstance(environment, StatefulEnvironment):
        return None
    with boundary(EnvironmentFault, f"state_hash of environment {task.environment!r} for task {task.id}"):
        return environment.state_hash()


def _extend(renderer: Renderer, prompt_ids: IntArray, turn: Turn, tools: Sequence[ToolSpec]) -> IntArray:
    if not turn.observations:
        raise EnvironmentFault(
            "the environment neither ended the episode nor observed anything; return observations or done=True"
        )
    return renderer.extend(prompt_ids, turn.completion.token_ids, turn.observations, tools)


async def close_environment(environment: Environment) -> str | None:
    """Close and return what went wrong, if anything."""
    try:
        with boundary(EnvironmentFault, "closing the environment"):
            await environment.close()
    except EnvironmentFault as cause:
        return f"EnvironmentFault: {cause}"
    return None
