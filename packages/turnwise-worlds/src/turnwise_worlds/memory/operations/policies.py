"""Scripted policies that keep a store."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.memory.operations.events import choose_operation, choose_untidy
from turnwise_worlds.memory.operations.store import look_up
from turnwise_worlds.memory.words import NONE, SLOTS, VALUES


class StoringPolicy:
    """Records slots that open. The other operations that keep the store in order it makes with probability `tidy`:
    otherwise it adds lines that should be updated or not recorded, and leaves ended ones. Answers with the store's last
    line about the slot. With `tidy=1` it is the oracle."""

    def __init__(self, tidy: float) -> None:
        self._tidy = tidy

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        _, *lines, kind, word = messages[-1].text.split()
        if kind == "ask":
            return answer_message(f"{word} {look_up(lines, word) or NONE}")
        choose = choose_operation if rng.random() < self._tidy else choose_untidy
        return answer_message(choose(tuple(lines), word))


class RandomPolicy:
    """Answers a random value."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return answer_message(f"{rng.choice(SLOTS)}{rng.choice(VALUES)}")
