"""Scripted policies for rows of a file. They read the allowed calls in the row."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise.rewards.tool_rl import Call
from turnwise_worlds.tool_calls.policies import DECLINE, calls_message
from turnwise_worlds.tool_calls.rows import to_allowed


def list_examples(task: Task) -> list[Call]:
    """Return each wanted call with allowed values."""
    wanted = to_allowed(task.payload["calls"], task.payload["functions"])
    return [(call.name, call.example() or {}) for call in wanted]


def answer_with(calls: Sequence[Call]) -> Message:
    """Return the reply that makes these calls, or says that no tool fits."""
    return calls_message(calls) if calls else answer_message(DECLINE)


class RowOracle:
    """Makes every wanted call."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the calls, or words."""
        return answer_with(list_examples(task))


class RowRandom:
    """Calls a random function with words from the request as its required arguments; every tenth time it calls none."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a meaningless call, or none."""
        if rng.random() < 0.1:
            return answer_with(())
        function = rng.choice(task.payload["functions"])
        words = task.prompt[-1].text.split() or [""]
        return answer_with([(function["name"], {key: rng.choice(words) for key in function["parameters"]["required"]})])


class RowNaive:
    """The demonstrator: makes the first wanted call, and all of several with probability `skill`; if none is right, it
    declines with probability `tact`, and otherwise calls the first function without arguments."""

    def __init__(self, skill: float, tact: float) -> None:
        """Both are probabilities."""
        self._skill = skill
        self._tact = tact

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the right reply, or one with the mistakes of the class."""
        calls = list_examples(task)
        if rng.random() < (self._skill if calls else self._tact):
            return answer_with(calls)
        return answer_with(calls[:1] or [(task.payload["functions"][0]["name"], {})])
