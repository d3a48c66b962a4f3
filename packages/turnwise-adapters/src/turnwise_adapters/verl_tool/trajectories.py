"""The trajectories of a tool server: each has its own environment, whose tools its actions call.

A trajectory begins with the first action under its id and ends when its client says `finish`, when its environment ends
or fails, or when it has been idle for a while. Actions of one trajectory run one after the other, in order; those of
different trajectories run concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from turnwise.core.episodes import MAIN, Asked
from turnwise.core.errors import TurnwiseError
from turnwise.core.messages import to_plain_text
from turnwise.core.protocols import Environment
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Message, Task
from turnwise.serving.desk import Desk, EpisodeEnded
from turnwise.serving.episode import OutsideEpisode
from turnwise_adapters.verl_tool.actions import Written, read_action, write_observation
from turnwise_adapters.verl_tool.wire import Action, Outcome

Build = Callable[[Mapping[str, Any]], tuple[Environment, Task]]
"""Builds a fresh environment and the task that opens it, from the extra fields of a trajectory's first action."""


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
        """`max_open` bounds the trajectories open at a time, `max_concurrent` the running actions. An action that runs
        longer than `timeout_s` ends its trajectory, whose state is then unknown. A trajectory also ends after `idle_s`
        without an action.
        """
        self._build = build
        self._seed = seed
        self._timeout_s = timeout_s
        self._desk = Desk(
            max_open=max_open,
            max_concurrent=max_concurrent,
            timeout_s=timeout_s,
            idle_s=idle_s,
            noun="trajectory",
            nouns="trajectories",
        )

    @property
    def num_open(self) -> int:
        """Number of trajectories that have begun and not ended."""
        return self._desk.num_open

    async def observe(self, actions: Sequence[Action]) -> list[Outcome]:
        """Return one outcome per action, in their order. A failure affects only its own trajectory."""
        rows: dict[str, list[int]] = {}
        for row, action in enumerate(actions):
            rows.setdefault(action.trajectory, []).append(row)
        waiting = [asyncio.ensure_future(self._observe_all([actions[row] for row in part])) for part in rows.values()]
        try:
            parts = await asyncio.gather(*waiting)
        except BaseException:  # the client has left: end what runs
            for work in waiting:
                work.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            raise
        outcomes = dict(zip((row for part in rows.values() for row in part), chain(*parts), strict=True))
        return [outcomes[row] for row in range(len(actions))]

    async def sweep(self) -> None:
        """End idle trajectories."""
        await self._desk.sweep()

    async def close(self) -> None:
        """End every trajectory."""
        await self._desk.close()

    async def _observe_all(self, actions: Sequence[Action]) -> list[Outcome]:
        """Return the outcomes of a batch's actions of one trajectory; none runs after the trajectory's end."""
        outcomes: list[Outcome] = []
        for action in actions:
            is_over = bool(outcomes) and outcomes[-1].is_done
            outcomes.append(_come_too_late(action) if is_over else await self._observe(action))
        return outcomes

    async def _observe(self, action: Action) -> Outcome:
        """Return the outcome of an action. If it fails or is cancelled, its trajectory ends, because its state is
        unknown."""
        key = action.trajectory
        try:
            if action.is_finish:
                if key in self._desk:
                    await self._desk.finish(key)
                return Outcome(text="", is_done=True)
            seed = derive_seed(self._seed, "tools", key)
            async with self._desk.use(key, lambda: self._build(action.extra), seed=seed) as episode:
                return await self._run(action, episode)
        except EpisodeEnded:
            return _come_too_late(action)
        except TimeoutError as cause:
            why = str(cause) or f"the action ran past {self._timeout_s:g} s"
        except TurnwiseError as cause:
            why = str(cause)
        return Outcome(text="", is_done=True, is_valid=False, problem=why, is_fault=True)

    async def _run(self, action: Action, episode: OutsideEpisode) -> Outcome:
        tools = episode.tools[MAIN]
        written = read_action(action.text, tools)
        if written is None:
            names = ", ".join(spec.name for spec in tools)
            return Outcome(text="", is_valid=False, problem=f"the action calls no tool; this server has {names}")
        reply = Message(role="assistant", content=(), tool_calls=written.calls, tool_errors=written.errors)
        [answer] = await episode.reply(reply)
        if episode.is_over:
            await episode.close()
        return _to_outcome(action, written, answer.asked)


def _come_too_late(action: Action) -> Outcome:
    """Return the outcome of an action that waited while its trajectory ended."""
    if action.is_finish:
        return Outcome(text="", is_done=True)
    problem = "the trajectory ended with an earlier action of it"
    return Outcome(text="", is_done=True, is_valid=False, problem=problem)


def _to_outcome(action: Action, written: Written, asked: Asked) -> Outcome:
    problems = [record.error for record in asked.tool_records if record.error is not None]
    problems += [error.message for error in written.errors]
    messages = (*asked.observations, *(message for ask in asked.asks for message in ask.messages))
    answers = [(message.name or "", to_plain_text(message)) for message in messages]
    return Outcome(
        text=write_observation(action.text, written.form, answers) if answers else "",
        is_done=not asked.asks,
        is_valid=not problems,
        problem="; ".join(problems),
    )
