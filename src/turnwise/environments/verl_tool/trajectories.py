"""The trajectories of a tool server: each has an environment of its own, whose tools its actions call.

A trajectory begins with the first action under its id and ends when its client says `finish`, when its environment
ends or fails, or when nothing has been asked of it for a while. Actions of one trajectory run one after the other, in
order; those of different ones run side by side.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from turnwise.core.errors import EnvironmentFault, TurnwiseError, boundary
from turnwise.core.protocols import Environment, StepResult
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Message, Task, ToolSpec
from turnwise.environments.mcp.episodes import close_environment
from turnwise.tools.verl_tool.actions import Written, read_action, write_observation
from turnwise.tools.verl_tool.wire import Action, Outcome

Build = Callable[[Mapping[str, Any]], tuple[Environment, Task]]
"""A fresh environment and the task to open it with, by the extra fields of a trajectory's first action."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Trajectory:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    environment: Environment | None = None
    """None before the first action and after the end."""
    tools: tuple[ToolSpec, ...] = ()
    num_waiting: int = 0
    """Actions that hold the lock or wait for it."""
    used: float = 0.0
    """When the last action ended, by the monotonic clock."""


class Trajectories:
    """Runs the actions of any number of clients."""

    def __init__(
        self,
        build: Build,
        *,
        seed: int = 0,
        max_open: int = 1024,
        max_concurrent: int = 64,
        timeout_s: float = 60.0,
        idle_s: float = 1800.0,
    ) -> None:
        """`max_open` bounds the trajectories at a time, `max_concurrent` the actions. An action that runs longer than
        `timeout_s` ends its trajectory, whose state is unknown from then on. `idle_s` without an action ends one too.
        """
        self._build = build
        self._seed = seed
        self._max_open = max_open
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._places = asyncio.Semaphore(max_concurrent)
        self._open: dict[str, _Trajectory] = {}

    @property
    def num_open(self) -> int:
        """Trajectories that have begun and not ended."""
        return len(self._open)

    async def observe(self, actions: Sequence[Action]) -> list[Outcome]:
        """One outcome per action, in their order. What goes wrong with one is the outcome of its trajectory alone."""
        rows: dict[str, list[int]] = {}
        for row, action in enumerate(actions):
            rows.setdefault(action.trajectory, []).append(row)
        waiting = [asyncio.ensure_future(self._observe_all([actions[row] for row in part])) for part in rows.values()]
        try:
            parts = await asyncio.gather(*waiting)
        except BaseException:  # the client has left: what runs is ended
            for work in waiting:
                work.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            raise
        outcomes = dict(zip((row for part in rows.values() for row in part), chain(*parts), strict=True))
        return [outcomes[row] for row in range(len(actions))]

    async def sweep(self) -> None:
        """End the trajectories that are idle."""
        oldest = time.monotonic() - self._idle_s
        idle = [id for id, each in self._open.items() if not each.num_waiting and each.used < oldest]
        for id in idle:
            await self._end(id)

    async def close(self) -> None:
        """End every trajectory."""
        await asyncio.gather(*(self._end(id) for id in list(self._open)))

    async def _observe_all(self, actions: Sequence[Action]) -> list[Outcome]:
        """The outcomes of a batch's actions of one trajectory; none runs after the trajectory's end."""
        outcomes: list[Outcome] = []
        for action in actions:
            is_over = bool(outcomes) and outcomes[-1].is_done
            outcomes.append(_come_too_late(action) if is_over else await self._observe(action))
        return outcomes

    async def _observe(self, action: Action) -> Outcome:
        trajectory = self._open.get(action.trajectory)
        if trajectory is None:
            if action.is_finish:
                return Outcome(text="", is_done=True)
            if len(self._open) >= self._max_open:
                problem = f"{self._max_open} trajectories are open, the most that this server allows; finish some"
                return Outcome(text="", is_done=True, is_valid=False, problem=problem, is_fault=True)
            trajectory = self._open[action.trajectory] = _Trajectory()
        trajectory.num_waiting += 1
        try:
            async with trajectory.lock:  # first come, first served
                if self._open.get(action.trajectory) is not trajectory:
                    return _come_too_late(action)
                if action.is_finish:
                    await self._end(action.trajectory)
                    return Outcome(text="", is_done=True)
                async with self._places:
                    return await self._run_or_end(action, trajectory)
        finally:
            trajectory.num_waiting -= 1
            trajectory.used = time.monotonic()

    async def _run_or_end(self, action: Action, trajectory: _Trajectory) -> Outcome:
        """Run an action. If that fails, or is cancelled, its trajectory ends, since its state is unknown."""
        try:
            async with asyncio.timeout(self._timeout_s):
                outcome = await self._run(action, trajectory)
        except TimeoutError as cause:
            why = str(cause) or f"the action ran past {self._timeout_s:g} s"
        except TurnwiseError as cause:
            why = str(cause)
        except BaseException:
            await self._end(action.trajectory)
            raise
        else:
            if outcome.is_done:
                await self._end(action.trajectory)
            return outcome
        await self._end(action.trajectory)
        return Outcome(text="", is_done=True, is_valid=False, problem=why, is_fault=True)

    async def _run(self, action: Action, trajectory: _Trajectory) -> Outcome:
        if trajectory.environment is None:
            await self._begin(action, trajectory)
        written = read_action(action.text, trajectory.tools)
        if written is None:
            names = ", ".join(spec.name for spec in trajectory.tools)
            return Outcome(text="", is_valid=False, problem=f"the action calls no tool; this server has {names}")
        reply = Message(role="assistant", content=(), tool_calls=written.calls, tool_errors=written.errors)
        assert trajectory.environment is not None
        with boundary(EnvironmentFault, f"trajectory {action.trajectory[:80]}"):
            result = await trajectory.environment.step(reply)
        return _to_outcome(action, written, result)

    async def _begin(self, action: Action, trajectory: _Trajectory) -> None:
        with boundary(EnvironmentFault, f"opening trajectory {action.trajectory[:80]}"):
            trajectory.environment, task = self._build(action.extra)
            opening = await trajectory.environment.reset(task, derive_seed(self._seed, "tools", action.trajectory))
        trajectory.tools = opening.tools

    async def _end(self, id: str) -> None:
        trajectory = self._open.pop(id, None)
        if trajectory is not None and trajectory.environment is not None:
            environment, trajectory.environment = trajectory.environment, None
            await close_environment(environment)


def _come_too_late(action: Action) -> Outcome:
    """The outcome of an action that waited while its trajectory ended."""
    if action.is_finish:
        return Outcome(text="", is_done=True)
    problem = "the trajectory ended with an earlier action of it"
    return Outcome(text="", is_done=True, is_valid=False, problem=problem)


def _to_outcome(action: Action, written: Written, result: StepResult) -> Outcome:
    problems = [record.error for record in result.tool_records if record.error is not None]
    problems += [error.message for error in written.errors]
    answers = [(message.name or "", message.text) for message in result.observations]
    return Outcome(
        text=write_observation(action.text, written.form, answers) if answers else "",
        is_done=result.done,
        is_valid=not problems,
        problem="; ".join(problems),
    )
