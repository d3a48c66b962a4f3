"""Scripted policies that read sections, in branches or in the main context."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.memory.chunks.stream import format_memory, read_chunk
from turnwise_worlds.memory.fold.environment import BRANCH, NEXT, READ
from turnwise_worlds.memory.words import NONE, SLOTS, VALUES


class FoldingPolicy:
    """Reads each section in a branch with probability `keep`, otherwise in the main context. A branch returns what its
    section says about the slots in question. With `keep=1` it is the oracle."""

    def __init__(self, keep: float) -> None:
        self._keep = keep

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        if messages[-1].text.endswith(NEXT):
            return answer_message(BRANCH if rng.random() < self._keep else READ)
        observed = [message for message in messages if message.role != "assistant"]
        words = [word for message in observed for word in message.text.split()]
        return answer_message(format_memory(read_chunk(dict.fromkeys(task.payload["asked"], NONE), words)))


class RandomPolicy:
    """Answers random values at once."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return answer_message(format_memory({slot: slot + rng.choice(VALUES) for slot in SLOTS}))
