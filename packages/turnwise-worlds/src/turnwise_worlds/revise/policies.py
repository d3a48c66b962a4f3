"""Scripted policies that answer twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.revise.sums import BASE, NUM_DIGITS, find_answer, write_work


@dataclass(frozen=True, slots=True, kw_only=True)
class TwicePolicy:
    """Knows the first answer to a training problem with probability `known`, to another with `known_others`, and
    otherwise guesses; works the second out with probability `works`, making a slip in each step with probability
    `slip`, and otherwise repeats the first."""

    known: float
    known_others: float
    works: float
    slip: float

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        digits = [int(word) for word in messages[0].text.split() if word.isdecimal()]
        if len(messages) == 1:
            knows = rng.random() < (self.known if task.payload["is_training"] else self.known_others)
            return answer_message(str(find_answer(digits) if knows else rng.randrange(BASE)))
        if rng.random() >= self.works:
            return messages[1]
        slips = [rng.randrange(1, BASE) if rng.random() < self.slip else 0 for _ in range(NUM_DIGITS - 1)]
        work = write_work(digits, slips)
        return answer_message(work.rpartition(" ")[2], reasoning=work)
