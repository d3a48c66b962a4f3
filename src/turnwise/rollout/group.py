"""Groups of trajectories and what to do when members fail: retry, then keep the failure visible."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Engine, Environment, Renderer
from turnwise.core.types import Invalid, Task, Trajectory, TrajectoryGroup
from turnwise.rollout.branching import Branching, run_branched_trajectory
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import Attempt, Sampling, run_trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """A named value, not a habit: how often a member with a retryable Invalid reward runs again, and how many may stay
    Invalid."""

    max_retries: int
    max_invalid_share: float
    """Of a batch's trajectories, after retries. More stops the run: most of a batch failing is a broken tool, not bad
    luck."""

    def check(self, groups: Sequence[TrajectoryGroup]) -> None:
        """Raise EnvironmentFault naming the most common cause when more than the allowed share is Invalid."""
        trajectories = [t for group in groups for t in group.trajectories]
        causes = Counter(t.reward.reason for t in trajectories if isinstance(t.reward, Invalid))
        share = sum(causes.values()) / max(1, len(trajectories))
        if share > self.max_invalid_share:
            cause, count = causes.most_common(1)[0]
            raise EnvironmentFault(
                f"{sum(causes.values())} of {len(trajectories)} trajectories could not be scored, more than "
                f"rollout.max_invalid_share={self.max_invalid_share}; most often ({count}x): {cause}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutWorker:
    """Everything a rollout needs besides the tasks."""

    build_environment: Callable[[], Environment]
    engine: Engine
    renderer: Renderer
    limits: Limits
    sampling: Sampling
    failure: FailurePolicy
    max_concurrency: int
    """Trajectories open at once; of their branches as many again."""
    branching: Branching | None = None
    """Futures each trajectory gets besides its own; None for none."""
    on_retry: Callable[[Trajectory], None] | None = None
    """Told of every attempt that is thrown away, before the next one at its member begins; None where nobody counts its
    tokens."""

    async def run_groups(self, tasks: Sequence[tuple[str, Task]], *, group_size: int) -> list[TrajectoryGroup]:
        """Run `group_size` trajectories of each `(group_id, task)`; groups and members come back in the order given."""
        gate, branches = asyncio.Semaphore(self.max_concurrency), asyncio.Semaphore(self.max_concurrency)

        async def run_member(group_id: str, task: Task, member: int) -> Trajectory:
            async with gate:
                return await self._run_with_retries(Attempt(task=task, group_id=group_id, member=member), branches)

        async with asyncio.TaskGroup() as supervisor:
            pending = [
                [supervisor.create_task(run_member(group_id, task, member)) for member in range(group_size)]
                for group_id, task in tasks
            ]
        return [
            TrajectoryGroup(task=task, group_id=group_id, trajectories=tuple(member.result() for member in members))
            for (group_id, task), members in zip(tasks, pending, strict=True)
        ]

    async def _run_with_retries(self, attempt: Attempt, branches: asyncio.Semaphore) -> Trajectory:
        while True:
            trajectory = await self._run(attempt, branches)
            reward = trajectory.reward
            if not isinstance(reward, Invalid) or not reward.retryable or attempt.number >= self.failure.max_retries:
                return trajectory
            if self.on_retry is not None:
                self.on_retry(trajectory)
            attempt = replace(attempt, number=attempt.number + 1)

    async def _run(self, attempt: Attempt, branches: asyncio.Semaphore) -> Trajectory:
        environment = self.build_environment()
        if self.branching is None:
            return await run_trajectory(attempt, environment, self.engine, self.renderer, self.limits, self.sampling)
        return await run_branched_trajectory(
            attempt,
            environment,
            self.engine,
            self.renderer,
            self.limits,
            self.sampling,
            branching=self.branching,
            gate=branches,
        )
