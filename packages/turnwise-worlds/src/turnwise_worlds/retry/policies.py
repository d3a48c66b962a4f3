"""Scripted policies that speak for both roles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.retry.conventions import (
    LETTERS,
    NUM_LETTERS,
    OFFSETS,
    SUSPECT,
    convert,
    infer_convention,
    spell,
)

_ATTEMPT = re.compile(r" call ([a-h ]+) note (.+) send")
_EXAMPLE = re.compile(r" example ([a-h]{2}) why$")


class ReadingPolicy:
    """Sends letters according to the note; reads the example with probability `insight`, and blames the usual suspect
    if it does not, or if there is no example. With `insight=1` it is the oracle."""

    def __init__(self, insight: float) -> None:
        self._insight = insight

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        asked = messages[-1].text
        if attempt := _ATTEMPT.fullmatch(asked):
            return answer_message(spell(convert(attempt[1], attempt[2])))
        shown = _EXAMPLE.search(asked)
        reads = shown is not None and rng.random() < self._insight
        convention = infer_convention(shown[1]) if shown is not None and reads else None
        return answer_message(convention or SUSPECT)


class RandomPolicy:
    """Sends any letters and blames any convention."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        if messages[-1].text.endswith(" send"):
            return answer_message(" ".join(rng.choices(LETTERS, k=NUM_LETTERS)))
        return answer_message(rng.choice(list(OFFSETS)))
