"""A chain of table look-ups: one per reply, so that the right answer, right steps and the value of a state are known.

    user        3 A C B
    assistant   <answer> 5 </answer>          3 + 2
    user        5 C B
    assistant   <answer> 4 </answer>          5 * 5
    user        4 B
    assistant   <answer> 5 </answer>          3 * 4

All modulo 7. A wrong value is carried on, so that its episode mostly ends wrong; squares forget a sign, so that some
end right with a wrong step. Nothing but the order of operations is random.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from pydantic import Field

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Opening, ScriptedPolicy, Split, StepResult
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.replies import answer_message
from turnwise.rewards.answers import extract_answer

MODULUS = 7
OPERATIONS = "ABCD"
HELD_OUT = 4
"""One task in this many is held out."""


class ChainArguments(FamilyArguments):
    """Values modulo 7 through a chain of operations.

    There are no tools, so the limits of tools are not read.
    """

    steps: int = Field(4, ge=1, le=8)
    """Operations of a task, and replies of an episode."""
    slip: Share = 0.15
    """Probability with which the naive policy writes another value than the right one, at every reply."""


def apply(operation: str, value: int) -> int:
    """The value after one operation: A adds 2, B multiplies by 3, C squares, D subtracts from 4; modulo 7."""
    results = {"A": value + 2, "B": value * 3, "C": value * value, "D": 4 - value}
    return results[operation] % MODULUS


def format_state(value: int, operations: str) -> str:
    """Write a state: `3 A C B`."""
    return f"{value} {' '.join(operations)}"


def read_value(message: Message) -> int | None:
    """The value that a reply states; None if it states none below 7."""
    text = (extract_answer(message.text) or "").strip()
    return int(text) if len(text) == 1 and text in "0123456" else None


class ChainEnvironment:
    """Implements `Environment`, `StatefulEnvironment` and `ForkableEnvironment`. Nothing is random."""

    def __init__(self) -> None:
        self._value: int | None = None
        self._right = 0
        self._left = ""
        self._slips = 0

    async def reset(self, task: Task, seed: int) -> Opening:
        """Show the first value and the operations."""
        self._value, self._left = int(task.payload["start"]), str(task.payload["operations"])
        self._right = self._value
        return Opening(messages=task.prompt, tools=())

    async def step(self, message: Message) -> StepResult:
        """Carry on with the value that the reply states; one that states none ends the episode. Raises EnvironmentFault
        outside an episode."""
        if self._value is None or not self._left:
            raise EnvironmentFault("ChainEnvironment is stepped outside an episode; build one for each episode")
        expected = apply(self._left[0], self._value)
        self._right = apply(self._left[0], self._right)
        self._value, self._left = read_value(message), self._left[1:]
        self._slips += self._value != expected
        if self._value is None or not self._left:
            return StepResult(observations=(), done=True)
        shown = text_message("user", f" {format_state(self._value, self._left)}")
        return StepResult(observations=(shown,), done=False)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 for the right last value, else 0; with the parts `success`, and `process`: 1 if every step was
        right."""
        ended = self._value is not None and not self._left
        success = float(ended and self._value == self._right)
        return Scored.of(success, {"success": success, "process": float(ended and not self._slips)})

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    async def fork(self) -> ChainEnvironment:
        """See `ForkableEnvironment.fork`."""
        return copy.copy(self)

    def state_hash(self) -> str:
        """Return the state itself; what was right before is no part of it, as the task says it."""
        return "ended" if self._value is None else format_state(self._value, self._left)


class ChainPolicy:
    """Writes the right next value but for slips, after each of which it carries on."""

    def __init__(self, slip: float) -> None:
        """`slip` is the probability of another value."""
        self._slip = slip

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`."""
        value, operation, *_ = messages[-1].text.split()
        result = apply(operation, int(value))
        if rng.random() < self._slip:
            result = rng.choice([other for other in range(MODULUS) if other != result])
        return answer_message(str(result))


class Chain(GeneratedFamily[ChainArguments]):
    """Chains of operations; every possible task belongs to one split."""

    name = "chain"
    section = ChainArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task. Held-out tasks are different; training tasks repeat after the last one.

        Raises IndexError past the last held-out task."""
        total = MODULUS * len(OPERATIONS) ** self._chosen.steps
        held_out = total // HELD_OUT
        if split == "heldout" and index >= held_out:
            raise IndexError(f"held-out task {index} does not exist: there are {held_out}")
        place = index if split == "heldout" else held_out + index % (total - held_out)
        # A step that shares no factor with their number visits every task once.
        number = (place * 2_654_435_761 + rng(self._chosen.seed, "chain").randrange(total)) % total
        start, operations = number % MODULUS, ""
        number //= MODULUS
        for _ in range(self._chosen.steps):
            operations += OPERATIONS[number % len(OPERATIONS)]
            number //= len(OPERATIONS)
        prompt = (text_message("user", f" {format_state(start, operations)}"),)
        return prompt, {"start": start, "operations": operations}

    def build_environment(self, task: Task) -> ChainEnvironment:
        """Build a fresh, single-use `ChainEnvironment`."""
        return ChainEnvironment()

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        return {
            "oracle": ChainPolicy(0.0),
            "random": ChainPolicy(1.0 - 1.0 / MODULUS),
            "naive": ChainPolicy(self._chosen.slip),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Return the states and values of a training task."""
        payload = self.task("train", index).payload
        value, operations = int(payload["start"]), str(payload["operations"])
        for place, operation in enumerate(operations):
            yield f" {format_state(value, operations[place:])}"
            value = apply(operation, value)
            yield f" {value}"
