"""The life of one trajectory: open, then reply and observe until something stops it, score, close.

It owns the limits and the stop reasons; retries belong to `workers`, disks to the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from turnwise.core.errors import EngineError, EnvironmentFault, ToolTimeout, TurnwiseError, boundary
from turnwise.core.protocols import Engine, Environment, Renderer, StatefulEnvironment
from turnwise.core.seeds import derive_seed
from turnwise.core.types import (
    Draw,
    DropReason,
    FinishReason,
    Grammar,
    Invalid,
    Reward,
    SamplingParams,
    Session,
    StopReason,
    Task,
    ToolSpec,
    Trajectory,
    TrajectoryId,
)
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.limits import Limits

CLOSE_S = 30.0
"""Seconds that closing an environment, releasing a session or obeying a cancellation may take."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How replies are drawn, and the seed from which everything random in the rollout derives."""

    temperature: float
    seed: int
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    min_p: float = 0.0
    """0 keeps all tokens."""
    build_grammar: Callable[[Sequence[ToolSpec]], Grammar] | None = None
    """What replies may be, given the tools on offer; None, and a conversation without tools, allow everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Which trajectory this is."""

    draw: Draw
    member: int
    number: int = 0
    """Attempt number of the member; the first one is `draw.attempt`."""
    scope: str = "train"
    """What the rollout is for: keeps the engine sessions of training and of an evaluation apart."""

    @property
    def task(self) -> Task:
        """The task of the draw."""
        return self.draw.task

    @property
    def id(self) -> TrajectoryId:
        """The name of the trajectory."""
        return TrajectoryId(draw=self.draw.index, member=self.member, attempt=self.number)

    def seed(self, run_seed: int, *path: int | str) -> int:
        """A seed that depends on the run, the draw, the member, the attempt and `path`; never on time or order."""
        return derive_seed(run_seed, self.draw.index, self.task.id, self.member, self.number, *path)

    def session(self, branch: int = 0) -> Session:
        """The engine session of this attempt, or of one of its branches."""
        suffix = f".{branch}" if branch else ""
        return Session(f"{self.scope}/{self.draw.index}", f"{self.member}/{self.number}{suffix}")


def environment_seed(run_seed: int, draw: Draw) -> int:
    """The seed of a draw's environments: its members face the same episode and differ by what they sample."""
    return derive_seed(run_seed, "environment", draw.index, draw.task.id)


@dataclass(slots=True, kw_only=True, eq=False)
class Cut:
    """Tells a trajectory that is cancelled whether to hand over what it has (it was cut) or to vanish."""

    reason: DropReason | None = None
    """Why the trajectory is superfluous; None while it is wanted."""


Visit = Callable[[Conversation, Environment], Awaitable[None]]
"""Called with every position before its reply is sampled."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fork:
    """Start in the middle: at `conversation`, in an environment that is in that state already."""

    number: int
    """Of the branch in its trajectory, from 1: names its random numbers and its cache."""
    conversation: Conversation


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
    cut: Cut | None = None,
) -> Trajectory:
    """Run one attempt to its end and score it. A failure is a trajectory with an Invalid reward, never an exception.

    With `fork` the turns are those sampled after it, and the environment is not reset. When the task is cancelled
    after `cut.reason` was set, the trajectory ends with what it has; otherwise the cancellation goes on. Both after
    the environment was closed.
    """
    session = attempt.session(fork.number if fork else 0)
    conversation = fork.conversation.fork() if fork else Conversation(renderer=renderer)
    play = _Play(
        attempt=attempt,
        environment=environment,
        engine=engine,
        limits=limits,
        sampling=sampling,
        session=session,
        fork=fork,
        visit=visit,
        conversation=conversation,
    )
    try:
        stop, reward, error = await _supervise(play, cut)
    finally:
        problem = await finish(_close(environment, engine, session), cut)
    if isinstance(reward, Invalid) and error is None:
        error = reward.reason
    return Trajectory(
        id=attempt.id,
        task_id=attempt.task.id,
        turns=tuple(conversation.turns),
        stop=stop,
        reward=reward,
        error="; ".join(filter(None, (error, problem))) or None,
        conversations=conversation.list_openings(attempt.task.prompt),
    )


def cut_reward() -> Invalid:
    """The reward of a trajectory that was cut."""
    return Invalid(reason="cut: the group no longer needed it", retryable=False)


def absorb_cut(cut: Cut | None) -> bool:
    """Whether the current task was cancelled only to hand over what it has; the cancellation is then taken back."""
    task = asyncio.current_task()
    if cut is None or cut.reason is None or task is None:
        return False
    while task.cancelling():
        task.uncancel()
    return True


async def finish(work: Coroutine[Any, Any, Result], cut: Cut | None = None) -> Result:
    """Await `work` to its end, also when cancelled meanwhile; then the cancellation goes on, unless it is a cut.

    `work` has deadlines of its own.
    """
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and not absorb_cut(cut):
        raise asyncio.CancelledError
    return task.result()


async def _supervise(play: _Play, cut: Cut | None) -> tuple[StopReason, Reward, str | None]:
    """Let `play` run to its end, its deadline or a cut; its stop reason, its reward and what failed.

    A step that ignores its cancellation for `CLOSE_S` is left behind.
    """
    playing = asyncio.ensure_future(play.run())
    is_cut, timeout_s = False, play.limits.timeout_s
    try:
        await asyncio.wait({playing}, timeout=timeout_s)
    except asyncio.CancelledError:
        is_cut = absorb_cut(cut)
        if not is_cut:
            await _end(play, playing, cut)
            raise
    is_late = not is_cut and not playing.done()
    await _end(play, playing, cut)
    failure: BaseException | None = None
    if playing.done() and not playing.cancelled():
        failure = playing.exception()
        if failure is None:
            return *playing.result(), None
    if is_cut:
        return StopReason.CUT, cut_reward(), None
    if is_late:
        failure = TimeoutError(f"ran past rollout.trajectory_timeout_s={timeout_s}")
    elif failure is None:
        failure = asyncio.CancelledError("the engine or the environment cancelled what the trajectory waited for")
    error = f"{type(failure).__name__}: {failure}"
    if isinstance(failure, ToolTimeout):
        return StopReason.TOOL_TIMEOUT, Invalid(reason=str(failure), retryable=True), error
    return StopReason.ERROR, Invalid(reason=error, retryable=True), error


async def _end(play: _Play, playing: asyncio.Task[Any], cut: Cut | None) -> None:
    if not playing.done():
        play.stopped = True
        playing.cancel()
        await finish(asyncio.wait({playing}, timeout=CLOSE_S), cut)
        playing.add_done_callback(_discard_result)


async def _close(environment: Environment, engine: Engine, session: Session) -> str | None:
    """Close the environment and release the session, both at once; what went wrong, None if nothing."""
    problems = await asyncio.gather(
        close_environment(environment),
        finish_within(CLOSE_S, lambda: engine.release(session), EngineError, f"releasing session {session}"),
    )
    return "; ".join(filter(None, problems)) or None


@dataclass(slots=True, kw_only=True, eq=False)
class _Play:
    """One trajectory while it is played."""

    attempt: Attempt
    environment: Environment
    engine: Engine
    limits: Limits
    sampling: Sampling
    session: Session
    fork: Fork | None
    visit: Visit | None
    conversation: Conversation
    stopped: bool = False
    """It was cancelled: no further reply is sampled, also where the environment ignores cancellation."""

    async def run(self) -> tuple[StopReason, Reward]:
        """Reply and observe until a stop reason, then score."""
        conversation = self.conversation
        if self.fork is None:
            await self._open()
        stop: StopReason | None = None
        while stop is None:
            num_replies, num_tokens = len(conversation.replies), len(conversation.prompt_ids)
            room = self.limits.before_reply(num_turns=num_replies, num_tokens=num_tokens)
            if isinstance(room, StopReason):
                if not num_replies:
                    return room, self._too_long(num_tokens)
                stop = room
                break
            if self.visit is not None:
                await self.visit(conversation, self.environment)
            stop = await self._turn(room)
        with boundary(EnvironmentFault, f"score of {self._where}"):
            return stop, await self.environment.score(conversation.replies, stop)

    @property
    def _where(self) -> str:
        return f"environment {self.attempt.task.environment!r} for task {self.attempt.task.id}"

    async def _open(self) -> None:
        attempt = self.attempt
        with boundary(EnvironmentFault, f"reset of {self._where}"):
            opening = await self.environment.reset(attempt.task, environment_seed(self.sampling.seed, attempt.draw))
        self.conversation.open(opening.messages, opening.tools)

    def _too_long(self, num_tokens: int) -> Invalid:
        reason = (
            f"the opening of task {self.attempt.task.id} has {num_tokens} tokens and leaves no room for a reply in "
            f"rollout.max_tokens={self.limits.max_tokens}; shorten the task, or raise rollout.max_tokens and "
            "engine.max_context"
        )
        return Invalid(reason=reason, retryable=False)

    async def _turn(self, room: int) -> StopReason | None:
        """One reply and what the environment answers; the stop reason if it was the last."""
        if self.stopped:
            raise asyncio.CancelledError
        conversation = self.conversation
        state = _state(self.environment, self.attempt.task)
        started = time.perf_counter()
        with boundary(EngineError, f"the engine failed in session {self.session}"):
            completion = await self.engine.generate(conversation.prompt_ids, self._params(room), session=self.session)
        message = conversation.reply(completion, state=state, engine_s=time.perf_counter() - started)
        if completion.finish_reason is FinishReason.LENGTH:
            return StopReason.MAX_TURN_TOKENS if room == self.limits.max_turn_tokens else StopReason.MAX_TOKENS
        started = time.perf_counter()
        with boundary(EnvironmentFault, f"step of {self._where}"):
            result = await self.environment.step(message)
        conversation.observe(result, environment_s=time.perf_counter() - started)
        return StopReason.DONE if result.done else None

    def _params(self, room: int) -> SamplingParams:
        conversation, sampling = self.conversation, self.sampling
        path = ("branch", self.fork.number) if self.fork is not None else ()
        return SamplingParams(
            max_tokens=room,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            grammar=(
                sampling.build_grammar(conversation.tools) if sampling.build_grammar and conversation.tools else None
            ),
            stop=conversation.renderer.stop,
            stop_token_ids=conversation.renderer.stop_token_ids,
            seed=self.attempt.seed(sampling.seed, *path, "turn", len(conversation.replies)),
        )


def _state(environment: Environment, task: Task) -> str | None:
    """The hash of the state a reply is about to be sampled in; None where the environment gives none."""
    if not isinstance(environment, StatefulEnvironment):
        return None
    with boundary(EnvironmentFault, f"state_hash of environment {task.environment!r} for task {task.id}"):
        return environment.state_hash()


async def finish_within(
    seconds: float, work: Callable[[], Awaitable[object]], error: type[TurnwiseError], what: str
) -> str | None:
    """Call and await `work`; returns what went wrong, None if nothing. After `seconds` it is cancelled and left behind.

    What `work` raises is named `error` where it is not an error of Turnwise.
    """

    async def guarded() -> None:
        with boundary(error, what):
            await work()

    task = asyncio.ensure_future(guarded())
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_discard_result)
    if not task.done():
        return f"{error.__name__}: {what}: not done after {seconds:g} s"
    if task.cancelled():
        return f"{error.__name__}: {what}: it was cancelled"
    cause = task.exception()
    return None if cause is None else f"{type(cause).__name__}: {cause}"


def _discard_result(task: asyncio.Task[Any]) -> None:
    """Read the exception of a task that was left behind, which asyncio would log."""
    if not task.cancelled():
        task.exception()


async def close_environment(environment: Environment) -> str | None:
    """Close within `CLOSE_S` and return what went wrong, None if nothing."""
    return await finish_within(CLOSE_S, lambda: environment.close(), EnvironmentFault, "closing the environment")
