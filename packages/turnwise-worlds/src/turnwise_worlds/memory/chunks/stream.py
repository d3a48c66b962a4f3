"""A stream of events that set slots, and the question about it. Pure functions of a seed.

An event is one word, a slot with the value it gets ("redmo"). The question is about two slots. Each is set once or,
with probability `TWICE`, a second time, which counts; all other events set other slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.seeds import rng
from turnwise_worlds.memory.words import NONE, SLOTS, VALUES, slot_of

NUM_ASKED = 2
TWICE = 0.3
"""Probability that a slot in question is set a second time."""

Memory = Mapping[str, str]
"""The word of every slot in question (`NONE` if unknown), in the order of the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream to be read, and the right answer."""

    chunks: tuple[tuple[str, ...], ...]
    """The words of each chunk."""
    answer: Memory
    """The last word of every slot in question."""


def build_stream(seed: int, asked: Sequence[str], *, num_chunks: int, chunk_events: int) -> Stream:
    """Build the stream of a seed: `num_chunks` chunks of `chunk_events` events each, at least 4 events in all."""
    random = rng(seed, "stream", num_chunks)
    count = num_chunks * chunk_events
    times = [2 if random.random() < TWICE else 1 for _ in asked]
    places = iter(random.sample(range(count), sum(times)))
    others = [slot for slot in SLOTS if slot not in asked]
    words = [random.choice(others) + random.choice(VALUES) for _ in range(count)]
    answer = {}
    for slot, number in zip(asked, times, strict=True):
        for place in sorted(next(places) for _ in range(number)):
            words[place] = answer[slot] = slot + random.choice(VALUES)
    chunks = tuple(tuple(words[start : start + chunk_events]) for start in range(0, count, chunk_events))
    return Stream(chunks=chunks, answer=answer)


def read_chunk(memory: Memory, words: Sequence[str]) -> dict[str, str]:
    """Return what a chunk says about the slots in `memory`: the last word of each, `NONE` if it says nothing."""
    said = {slot_of(word): word for word in words}
    return {slot: said.get(slot, NONE) for slot in memory}


def format_memory(memory: Memory) -> str:
    """Write a memory, `red redmo blue none`: each slot precedes its word, so that a reader finds the word next to the
    slot."""
    return " ".join(f"{slot} {word}" for slot, word in memory.items())


def parse_memory(text: str, asked: Sequence[str]) -> dict[str, str]:
    """Parse a text in the form of `format_memory`: the word after the first mention of each slot, `NONE` if there is
    none."""
    words = text.split()
    return {slot: words[words.index(slot) + 1] if slot in words[:-1] else NONE for slot in asked}
