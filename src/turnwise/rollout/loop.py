"""Runs one episode: plays it until something stops it, then scores and closes it, whatever fails.

It owns deadlines, cancellation and cuts; `play` handles requests and replies, `workers` retries, and the store the
disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from turnwise.core.checked import to_asking
from turnwise.core.closing import CLOSE_S as CLOSE_S
from turnwise.core.closing import close_environment, discard_result, finish_within
from turnwise.core.episodes import AGENT, AskingEnvironment, EpisodeEnd
from turnwise.core.errors import EngineError, ToolTimeout
from turnwise.core.protocols import Engine, Environment, Renderer
from turnwise.core.types import DropReason, Episode, Invalid, Reward, Session, StopReason, Trajectory
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.play import Fork, Play, Visit
from turnwise.rollout.policies import EnginePolicy, RolePolicy

Result = TypeVar("Result")


@dataclass(slots=True, kw_only=True, eq=False)
class Cut:
    """Tells a cancelled trajectory whether to return what it has (it was cut) or to vanish."""

    reason: DropReason | None = None
    """Why the trajectory is superfluous; None while it is wanted."""


class Playable(Protocol):
    """One episode in progress."""

    stopped: bool
    """Set when the episode is cancelled: no further reply is sampled."""

    @property
    def environment(self) -> AskingEnvironment:
        """What is closed at the end."""
        ...

    @property
    def limits(self) -> Limits:
        """The deadline is read."""
        ...

    @property
    def problems(self) -> list[str]:
        """Problems that did not affect the episode itself."""
        ...

    async def run(self) -> tuple[EpisodeEnd, Mapping[str, Reward]]:
        """Play and score."""
        ...

    def list_replies(self) -> list[asyncio.Task[None]]:
        """Return the tasks that sample replies."""
        ...

    def list_sessions(self) -> list[tuple[RolePolicy, Session]]:
        """Return the engine sessions that are held, with their policies."""
        ...

    def collect(self) -> None:
        """Record replies that were sampled but not taken when the episode was interrupted."""
        ...

    def reward_all(self, reward: Reward) -> dict[str, Reward]:
        """Give every role the same reward."""
        ...

    def to_trajectories(
        self, stop: StopReason, rewards: Mapping[str, Reward], error: str | None
    ) -> tuple[Trajectory, ...]:
        """Return the trajectory of every role, whatever happened."""
        ...


async def run_episode(
    attempt: Attempt,
    environment: Environment | AskingEnvironment,
    policies: Mapping[str, RolePolicy],
    limits: Limits,
    sampling: Sampling,
    *,
    fork: Fork | None = None,
    visit: Visit | None = None,
    cut: Cut | None = None,
) -> Episode:
    """Run one attempt to its end and score it. A failure is an episode with Invalid rewards, never an exception.

    `policies` speak for the environment's roles, by name. With `fork` the turns are those sampled after it, and the
    environment is not reset; it and `visit` take an `Environment`. When the task is cancelled after `cut.reason` was
    set, the episode ends with what it has; otherwise the cancellation propagates. Either happens after the environment
    was closed.
    """
    play = Play(
        attempt=attempt,
        environment=to_asking(environment),
        policies=policies,
        limits=limits,
        sampling=sampling,
        release=lambda voice: _release(voice.policy, voice.session),
        fork=fork,
        visit=visit,
    )
    return await run_play(play, attempt, cut)


async def run_play(play: Playable, attempt: Attempt, cut: Cut | None = None) -> Episode:
    """Run a play to its end and score it; see `run_episode`."""
    try:
        stop, rewards, error = await _supervise(play, cut)
    finally:
        problem = await finish(_close(play), cut)
    reasons = [reward.reason for reward in rewards.values() if isinstance(reward, Invalid)]
    error = error or next(iter(reasons), None)
    return Episode(
        draw=attempt.draw,
        member=attempt.member,
        trajectories=play.to_trajectories(stop, rewards, "; ".join(filter(None, (error, problem))) or None),
        stop=stop,
    )


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
    """`run_episode` with one role, the agent. A failure is a trajectory with an Invalid reward, never an exception."""
    policies = {AGENT: EnginePolicy(engine=engine, renderer=renderer)}
    episode = await run_episode(attempt, environment, policies, limits, sampling, fork=fork, visit=visit, cut=cut)
    [trajectory] = episode.trajectories
    return trajectory


def cut_reward() -> Invalid:
    """Return the reward of a trajectory that was cut."""
    return Invalid(reason="cancelled: the group no longer needed it", retryable=False)


def absorb_cut(cut: Cut | None) -> bool:
    """Return whether the current task was cancelled only to hand over what it has; if so, undo the cancellation."""
    task = asyncio.current_task()
    if cut is None or cut.reason is None or task is None:
        return False
    while task.cancelling():
        task.uncancel()
    return True


async def finish(work: Coroutine[Any, Any, Result], cut: Cut | None = None) -> Result:
    """Await `work` to its end, even if cancelled meanwhile; then propagate the cancellation, unless it is a cut.

    `work` must have its own deadlines.
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


async def _supervise(play: Playable, cut: Cut | None) -> tuple[StopReason, Mapping[str, Reward], str | None]:
    """Run `play` to its end, its deadline or a cut. Returns its stop reason, its rewards and the failure, if any.

    A step that ignores its cancellation for `CLOSE_S` is abandoned.
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
            end, rewards = playing.result()
            return end.stop, rewards, None
    if is_cut:
        return StopReason.CUT, play.reward_all(cut_reward()), None
    if is_late:
        failure = TimeoutError(f"exceeded rollout.trajectory_timeout_s={timeout_s}")
    elif failure is None:
        failure = asyncio.CancelledError("the engine or the environment cancelled an operation of the trajectory")
    error = f"{type(failure).__name__}: {failure}"
    if isinstance(failure, ToolTimeout):
        return StopReason.TOOL_TIMEOUT, play.reward_all(Invalid(reason=str(failure), retryable=True)), error
    return StopReason.ERROR, play.reward_all(Invalid(reason=error, retryable=True)), error


async def _end(play: Playable, playing: asyncio.Task[Any], cut: Cut | None) -> None:
    if not playing.done():
        play.stopped = True
        replies = play.list_replies()
        for task in (playing, *replies):
            task.cancel()
        await finish(asyncio.wait({playing, *replies}, timeout=CLOSE_S), cut)
        playing.add_done_callback(discard_result)


async def _close(play: Playable) -> str | None:
    """Stop sampling, close the environment and release the sessions. Returns what went wrong, None if nothing."""
    replies = play.list_replies()
    for reply in replies:
        reply.cancel()
    if replies and not play.stopped:  # else they have already had time to react to the cancellation
        await asyncio.wait(replies, timeout=CLOSE_S)
    play.collect()
    for reply in replies:
        reply.add_done_callback(discard_result)
    problems = await asyncio.gather(
        close_environment(play.environment, CLOSE_S), *(_release(*held) for held in play.list_sessions())
    )
    return "; ".join(filter(None, (*play.problems, *problems))) or None


async def _release(policy: RolePolicy, session: Session) -> str | None:
    """Release a session within `CLOSE_S`. Returns what went wrong, None if nothing."""
    return await finish_within(CLOSE_S, lambda: policy.release(session), EngineError, f"releasing session {session}")
