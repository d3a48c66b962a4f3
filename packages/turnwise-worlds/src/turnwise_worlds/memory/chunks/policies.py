"""Scripted policies that read streams."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.memory.chunks.stream import format_memory, parse_memory, read_chunk
from turnwise_worlds.memory.words import NONE, VALUES


class KeepingPolicy:
    """Writes what the chunk says, and keeps each line of the old memory about which the chunk says nothing with
    probability `keep`. Answers what the memory says. With `keep=1` it is the oracle."""

    def __init__(self, keep: float) -> None:
        self._keep = keep

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        asked = tuple(task.payload["asked"])
        _, _, rest = messages[-1].text.partition(" memory ")
        text, _, section = rest.partition(" section ")
        memory = parse_memory(text.removesuffix(" answer"), asked)
        if section:
            said = read_chunk(memory, section.split())
            kept = {slot: word if rng.random() < self._keep else NONE for slot, word in memory.items()}
            memory = {slot: kept[slot] if said[slot] == NONE else said[slot] for slot in asked}
        return answer_message(format_memory(memory))


class RandomPolicy:
    """Writes and answers random values for the slots in question."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return answer_message(format_memory({slot: slot + rng.choice(VALUES) for slot in task.payload["asked"]}))
