"""One episode in a house: every reply is a command, and the environment says what happens.

    user        bed drawer fridge shelf : put egg shelf
    assistant   <answer> go fridge </answer>
    user        fridge shut
    assistant   <answer> open </answer>
    user        fridge apple egg
    assistant   <answer> take egg </answer>
    ...

The episode ends when the task is fulfilled, or after `max_steps` replies.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Message, Reward, Scored, Signal, StopReason, Task, TurnScores, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.house.arguments import HouseArguments
from turnwise_worlds.house.plan import measure_progress
from turnwise_worlds.house.session import Session


class HouseEnvironment:
    """Implements `Environment`, `StatefulEnvironment` and `ForkableEnvironment`. Nothing is random."""

    def __init__(self, chosen: HouseArguments, task: Task) -> None:
        self._task = task
        self._session = Session.open(task.payload, chosen)
        self._stage = "before reset"

    async def reset(self, task: Task, seed: int) -> Opening:
        """Show the places and the task. Raises EnvironmentFault the second time."""
        if self._stage != "before reset":
            raise EnvironmentFault("HouseEnvironment was reset twice; build one for each episode")
        self._stage = "open"
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        """Carry out the command between `<answer>` and `</answer>`; see `Session`. Raises EnvironmentFault outside an
        episode."""
        if self._stage != "open":
            raise EnvironmentFault(f"HouseEnvironment was stepped {self._stage}; build one for each episode")
        before = measure_progress(self._session.house, self._session.state)
        self._session = self._session.command(extract_answer(message.text) or "")
        if self._session.is_over:
            self._stage = "after its episode ended"
        return StepResult(
            observations=() if self._session.is_over else (text_message("user", self._session.shown),),
            done=self._session.is_over,
            scores=TurnScores(potential=before),
            signals=tuple(Signal(name=name, value=value) for name, value in self._session.signals),
        )

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the task is fulfilled, else 0. Parts: "success", and "progress" (`measure_progress`)."""
        success = float(self._session.is_done)
        progress = measure_progress(self._session.house, self._session.state)
        return Scored.of(success, {"success": success, "progress": progress})

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    async def fork(self) -> HouseEnvironment:
        """See `ForkableEnvironment`."""
        return copy.copy(self)

    def state_hash(self) -> str:
        """Return a hash that is equal if the house is, however it was reached and after however many steps."""
        state = self._session.state
        read = (state.at, state.where, sorted(state.opened), sorted(state.has), sorted(state.lit))
        return hashlib.sha256(f"{self._task.id} {read}".encode()).hexdigest()[:16]
