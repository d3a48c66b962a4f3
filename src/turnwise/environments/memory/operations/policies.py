"""Scripted policies that keep a store."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.memory.operations.events import choose_operation, choose_untidy
from turnwise.environments.memory.operations.store import look_up
from turnwise.environments.memory.words import NONE, SLOTS, VALUES
from turnwise.environments.replies import answer_message


class StoringPolicy:
    """Writes down what opens. What else keeps the store in order it does with the probability `tidy`: otherwise it
    adds what should be updated and what should not be written down, and leaves what is over. Answers what the store
    says last. With `tidy=1` it is the oracle."""

    def __init__(self, tidy: float) -> None:
        self._tidy = tidy

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        _, *lines, kind, word = messages[-1].text.split()
        if kind == "ask":
            return answer_message(f"{word} {look_up(lines, word) or NONE}")
        choose = choose_operation if rng.random() < self._tidy else choose_untidy
        return answer_message(choose(tuple(lines), word))


class RandomPolicy:
    """Answers any value."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return answer_message(f"{rng.choice(SLOTS)}{rng.choice(VALUES)}")
