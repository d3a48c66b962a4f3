"""Scripted policies that quote and judge."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.debate.case import DAYS, NUM_LINES, SIDES, find_verdict


class BestPolicy:
    """Quotes the latest line of its own side, and decides by the latest quote that supports a side, at random if there
    is none. With truthful debaters it is the oracle."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        words = messages[-1].text.split()
        if words[-1] == "quote":
            return answer_message(words[-2])
        return answer_message(find_verdict(words[1:-1]) or rng.choice(SIDES))


class NaivePolicy:
    """The demonstrator.

    With probability `right` it quotes the latest line of its own side, or decides by the latest quote that supports a
    side; otherwise it quotes the oldest line of the record, or decides by the last quote it read. A share `fabricated`
    of its quotes is made up for its candidate, with any day.
    """

    def __init__(self, *, right: float, fabricated: float) -> None:
        self._right, self._fabricated = right, fabricated

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        words = messages[-1].text.split()
        chance = rng.random()
        if chance < self._right:
            return BestPolicy().reply(task, messages, rng)
        if words[-1] == "quote":
            made_up = words[words.index("for") + 1] + rng.choice(DAYS)
            return answer_message(made_up if chance < self._right + self._fabricated else words[1])
        last = words[-2][-1]
        return answer_message(last if last in SIDES else rng.choice(SIDES))


class RandomPolicy:
    """Quotes any line of the record and decides at random."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        words = messages[-1].text.split()
        return answer_message(rng.choice(words[1 : NUM_LINES + 1] if words[-1] == "quote" else SIDES))
