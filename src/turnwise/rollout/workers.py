"""Runs groups: members start when a slot is free, retry when they fail, and are returned as complete groups.

A group is complete when `group_size` of its members are scored, or all started members have ended. Surplus members
(`overdraw`) are then cut; what they sampled stays with the group as discarded.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from turnwise.core.checked import to_asking
from turnwise.core.episodes import AGENT, ASIDE, AskingEnvironment, LiveEnvironment
from turnwise.core.errors import EnvironmentFault
from turnwise.core.judging import Judge, Slot, seat_judges
from turnwise.core.protocols import Engine, Environment, Renderer
from turnwise.core.types import (
    Discarded,
    Draw,
    DropReason,
    Episode,
    Invalid,
    Scored,
    StopReason,
    Task,
    TrajectoryGroup,
)
from turnwise.core.verdicts import Judgement
from turnwise.rollout import loop
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.branching import Branching, run_branched_trajectory
from turnwise.rollout.limits import Limits
from turnwise.rollout.live import Endpoints, run_live_episode
from turnwise.rollout.loop import Cut, run_episode
from turnwise.rollout.order import choose_members, start_order
from turnwise.rollout.policies import EnginePolicy, RolePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """How often a member with a retryable Invalid reward runs again, and how many members may stay Invalid."""

    max_retries: int
    max_invalid_share: float
    """Largest share of invalid trajectories in a step or an evaluation, after retries. A larger share stops the run:
    the cause is a broken tool, not bad luck."""

    def check(self, groups: Iterable[TrajectoryGroup]) -> None:
        """Raise EnvironmentFault naming the most common cause if more than the allowed share is Invalid.

        Reasons that differ only in the names of task, draw and trajectory count as one cause; the message quotes the
        first of them.
        """
        members = [(group.draw, trajectory.reward) for group in groups for trajectory in group.trajectories]
        reasons = [(draw, reward.reason) for draw, reward in members if isinstance(reward, Invalid)]
        if len(reasons) / max(1, len(members)) > self.max_invalid_share:
            causes = [find_cause(reason, draw) for draw, reason in reasons]
            commonest, count = Counter(causes).most_common(1)[0]
            _, example = reasons[causes.index(commonest)]
            raise EnvironmentFault(
                f"{len(reasons)} of {len(members)} trajectories could not be scored, more than "
                f"rollout.max_invalid_share={self.max_invalid_share} allows; most often ({count}x): {example}"
            )


def find_cause(reason: str, draw: Draw) -> str:
    """Return the reason without the names of its group: the task, the draw, a trajectory or its engine session."""
    names = rf"{re.escape(draw.task.id)}|draw {draw.index}|(?:\w+/)?{draw.index}/\d+[/.\d]*"
    return re.sub(rf"(?<!\w)(?:{names})(?!\w)", "", reason)


PlayElsewhere = Callable[["RolloutWorker", Attempt, Cut | None, Slot | None], Awaitable[Episode]]
"""Does in another process what `RolloutWorker.run_attempt` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutWorker:
    """Everything that a rollout needs except the tasks."""

    build_environment: Callable[[Task], Environment | AskingEnvironment]
    engine: Engine
    renderer: Renderer
    limits: Limits
    sampling: Sampling
    failure: FailurePolicy
    max_open: int
    """Most trajectories open at once, including those that wait for a tool but not those that a judge is reading; the
    same number again of their branches."""
    branching: Branching | None = None
    """Further continuations sampled for each trajectory; None for none."""
    scope: str = "train"
    """What the rollout is for; part of its engine sessions' names."""
    policies: Mapping[str, RolePolicy] = field(default_factory=dict)
    """Policies of roles that do not learn, by role."""
    judges: Mapping[str, Judge] = field(default_factory=dict)
    """Judges that environments may ask, by name."""
    elsewhere: PlayElsewhere | None = None
    """Runs attempts in other processes; None runs them here."""

    endpoints: Endpoints | None = None
    """Serves programs that ask for replies by themselves; None if none can be played."""

    async def run_attempt(
        self,
        attempt: Attempt,
        *,
        cut: Cut | None = None,
        branches: asyncio.Semaphore | None = None,
        slot: Slot | None = None,
    ) -> Episode:
        """Run one attempt with its branches; `branches` limits the branches of several attempts together, and `slot` is
        free while the episode waits for a judge."""
        if self.elsewhere is not None:
            return await self.elsewhere(self, attempt, cut, slot)
        environment = self.build_environment(attempt.task)
        seated = seat_judges(environment, self.judges, slot)
        episode = await self._run_here(attempt, environment, cut=cut, branches=branches)
        return with_judgements(episode, seated.judgements)

    async def _run_here(
        self,
        attempt: Attempt,
        environment: Environment | AskingEnvironment,
        *,
        cut: Cut | None,
        branches: asyncio.Semaphore | None,
    ) -> Episode:
        learner = EnginePolicy(engine=self.engine, renderer=self.renderer)
        if isinstance(environment, LiveEnvironment):
            return await self._run_live(attempt, environment, learner, cut)
        if self.branching is None or isinstance(environment, AskingEnvironment):
            roles = [role.name for role in to_asking(environment).spec.roles]
            policies: dict[str, RolePolicy] = {role: self.policies.get(role, learner).of(attempt) for role in roles}
            return await run_episode(attempt, environment, policies, self.limits, self.sampling, cut=cut)
        gate = branches or asyncio.Semaphore(self.max_open)
        trajectory = await run_branched_trajectory(
            attempt,
            environment,
            self.engine,
            self.renderer,
            self.limits,
            self.sampling,
            branching=self.branching,
            gate=gate,
            cut=cut,
        )
        return Episode(draw=attempt.draw, member=attempt.member, trajectories=(trajectory,), stop=trajectory.stop)

    async def _run_live(
        self, attempt: Attempt, environment: LiveEnvironment, learner: EnginePolicy, cut: Cut | None
    ) -> Episode:
        policies = {
            role.name: self.policies.get(role.name, replace(learner, learns=role.name != ASIDE)).of(attempt)
            for role in environment.spec.roles
        }
        if self.endpoints is None:
            raise EnvironmentFault(
                f"{type(environment).__name__} is played by a program, which needs endpoints; give the worker some"
            )
        return await run_live_episode(
            attempt, environment, policies, self.limits, self.sampling, self.endpoints, cut=cut
        )

    async def run_groups(self, draws: Sequence[Draw], *, group_size: int) -> list[TrajectoryGroup]:
        """Roll out every draw. Returns the groups in the given order."""
        stream = GroupStream(self, group_size=group_size)
        try:
            for draw in draws:
                stream.start(draw, version=self.engine.version)
            finished = [await stream.next() for _ in draws]
        finally:
            await stream.close()
        places = {draw.index: place for place, draw in enumerate(draws)}
        return sorted(finished, key=lambda group: places[group.draw.index])


def with_judgements(episode: Episode, judgements: Sequence[Judgement]) -> Episode:
    """Return the episode with what judges said about it, in the trajectory of its first role."""
    if not judgements:
        return episode
    first, *others = episode.trajectories
    return replace(episode, trajectories=(replace(first, judgements=tuple(judgements)), *others))


@dataclass(slots=True, kw_only=True, eq=False)
class _Open:
    """A group that is being rolled out."""

    draw: Draw
    version: int
    cut: Cut = field(default_factory=Cut)
    num_unsettled: int = 0
    """Number of members that wait, run or are being cut."""
    running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    ended: list[Episode] = field(default_factory=list)
    """Episodes in the order of ending, without those that were cut."""
    discarded: list[Discarded] = field(default_factory=list)
    need: int | None = None
    """Most tokens sampled by a member; None until one has ended."""

    @property
    def num_scored(self) -> int:
        return sum(isinstance(t.reward, Scored) for t in self.ended)


def _discard(episode: Episode, reason: DropReason) -> list[Discarded]:
    return [Discarded(trajectory=trajectory, reason=reason) for trajectory in episode.trajectories]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A member without a slot."""

    group: _Open
    member: int

    @property
    def draw(self) -> int:
        return self.group.draw.index


class GroupStream:
    """Plays groups on one event loop: `start` them, and get them from `next` in order of completion."""

    def __init__(self, worker: RolloutWorker, *, group_size: int, overdraw: int = 0) -> None:
        """`overdraw` members more than `group_size` are started; the first ones to be scored are kept."""
        self._worker = worker
        self._group_size = group_size
        self._num_members = group_size + overdraw
        self._open: dict[int, _Open] = {}
        self._waiting: list[_Waiting] = []
        self._num_running = 0
        self._branches = asyncio.Semaphore(worker.max_open)
        self._complete: asyncio.Queue[TrajectoryGroup | BaseException] = asyncio.Queue()

    @property
    def num_open(self) -> int:
        """Groups started and not yet complete."""
        return len(self._open)

    @property
    def num_complete(self) -> int:
        """Number of complete groups that `next` has not returned yet."""
        return self._complete.qsize()

    def start(self, draw: Draw, *, version: int) -> None:
        """Start a group; `version` is the weight version that engines serve. Raises ValueError if the draw is already
        open."""
        if draw.index in self._open:
            raise ValueError(f"draw {draw.index} is already open")
        group = _Open(draw=draw, version=version, num_unsettled=self._num_members)
        self._open[draw.index] = group
        self._waiting += [_Waiting(group, member) for member in range(self._num_members)]
        self._fill()

    async def next(self) -> TrajectoryGroup:
        """Wait for the next complete group and return it. Raises what `build_environment` raised."""
        item = await self._complete.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def count_ended(self) -> dict[int, int]:
        """Return how many members of every open group have ended, by draw."""
        return {draw: len(group.ended) for draw, group in self._open.items()}

    def list_unsettled(self) -> dict[int, dict[int, bool]]:
        """Return the members of every open group that have not ended, by draw and member: whether each runs (or waits
        for a slot)."""
        unsettled = {draw: dict.fromkeys(group.running, True) for draw, group in self._open.items()}
        for waiting in self._waiting:
            unsettled[waiting.draw][waiting.member] = False
        return unsettled

    def cut(self, draw: int) -> None:
        """End a group with the members that have ended; the others are discarded as late. Unknown draws are ignored."""
        group = self._open.get(draw)
        if group is not None:
            self._cut_rest(group, DropReason.LATE)

    async def close(self) -> None:
        """Cancel all groups and wait until their environments are closed."""
        tasks = [task for group in self._open.values() for task in group.running.values()]
        self._waiting.clear()
        self._open.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            # Cancelling an attempt, closing it and closing its branches take at most CLOSE_S each.
            await asyncio.wait(tasks, timeout=4 * loop.CLOSE_S)

    @contextmanager
    def free(self) -> Iterator[None]:
        """See `Slot.free`: a member that waits for a judge samples nothing. It returns without waiting, so that for the
        rest of its episode one more may be open."""
        self._num_running -= 1
        self._fill()
        try:
            yield
        finally:
            self._num_running += 1

    def _fill(self) -> None:
        """Start members while slots are free, in the order of `start_order`."""
        num_free = self._worker.max_open - self._num_running
        if num_free <= 0 or not self._waiting:
            return
        needs = {draw: float(group.need) for draw, group in self._open.items() if group.need is not None}
        order = start_order(self._waiting, needs)
        self._waiting = order[num_free:]
        for waiting in order[:num_free]:
            self._num_running += 1
            task = asyncio.create_task(self._run_member(waiting.group, waiting.member))
            waiting.group.running[waiting.member] = task
            task.add_done_callback(partial(self._settle, waiting.group, waiting.member))

    async def _run_member(self, group: _Open, member: int) -> None:
        worker = self._worker
        attempt = Attempt(
            draw=group.draw, member=member, number=group.draw.attempt, version=group.version, scope=worker.scope
        )
        while True:
            episode = await worker.run_attempt(attempt, cut=group.cut, branches=self._branches, slot=self)
            if episode.stop is StopReason.CUT and group.cut.reason is not None:
                group.discarded += _discard(episode, group.cut.reason)
                return
            reward = episode.reward
            can_retry = attempt.number - group.draw.attempt < worker.failure.max_retries and group.cut.reason is None
            if not (isinstance(reward, Invalid) and reward.retryable and can_retry):
                group.ended.append(episode)
                return
            group.discarded += _discard(episode, DropReason.RETRIED)
            attempt = replace(attempt, number=attempt.number + 1)

    def _settle(self, group: _Open, member: int, task: asyncio.Task[None]) -> None:
        self._num_running -= 1
        group.num_unsettled -= 1
        group.running.pop(member, None)
        if self._open.get(group.draw.index) is not group:
            return  # the stream was closed
        if not task.cancelled() and (cause := task.exception()) is not None:
            self._complete.put_nowait(cause)
            return
        if group.ended:
            group.need = max(t.num_sampled_tokens for t in group.ended)
        if group.num_scored >= self._group_size:
            self._cut_rest(group, DropReason.OVERDRAWN)
        if not group.num_unsettled:
            self._finish(group)
        self._fill()

    def _cut_rest(self, group: _Open, reason: DropReason) -> None:
        """Cut a group's other members: those that wait never start, those that run end with what they have."""
        if group.cut.reason is not None:
            return
        group.cut.reason = reason
        others = [waiting for waiting in self._waiting if waiting.group is not group]
        group.num_unsettled -= len(self._waiting) - len(others)
        self._waiting = others
        for task in group.running.values():
            task.cancel()
        if not group.num_unsettled:
            self._finish(group)

    def _finish(self, group: _Open) -> None:
        if self._open.pop(group.draw.index, None) is None:
            return
        kept, overdrawn = choose_members(group.ended, self._group_size)
        discarded = [
            *group.discarded,
            *(each for episode in overdrawn for each in _discard(episode, DropReason.OVERDRAWN)),
        ]
        trajectories = [trajectory for episode in kept for trajectory in episode.trajectories]
        roles = {t.id.role for t in (*trajectories, *(each.trajectory for each in discarded))}
        self._complete.put_nowait(
            TrajectoryGroup(
                draw=group.draw,
                trajectories=tuple(sorted(trajectories, key=lambda t: t.id)),
                version=group.version,
                role=roles.pop() if len(roles) == 1 else "" if roles else AGENT,
                discarded=tuple(sorted(discarded, key=lambda each: each.trajectory.id)),
            )
        )
