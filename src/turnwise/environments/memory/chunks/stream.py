"""A stream of events that set slots, and what is asked about it. Pure functions of a seed.

An event is one word, a slot with the value it gets ("redmo"). Two slots are asked about. Each is set once, or with
`TWICE` a second time, which counts; all other events set slots that are not asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.seeds import rng
from turnwise.environments.memory.words import NONE, SLOTS, VALUES, slot_of

NUM_ASKED = 2
TWICE = 0.3
"""Probability that a slot that is asked about is set a second time."""

Memory = Mapping[str, str]
"""The word of every slot that is asked about (`NONE` where nothing is known), in the order of the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What is to be read, and the right answer."""

    chunks: tuple[tuple[str, ...], ...]
    """The words of every chunk."""
    answer: Memory
    """The last word of every slot that is asked about."""


def build_stream(seed: int, asked: Sequence[str], *, num_chunks: int, chunk_events: int) -> Stream:
    """The stream of a seed: `num_chunks` chunks of `chunk_events` events each, for at least 4 events in all."""
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
    """What a chunk says about the slots in `memory`: the last word of each, `NONE` where it says nothing."""
    said = {slot_of(word): word for word in words}
    return {slot: said.get(slot, NONE) for slot in memory}


def format_memory(memory: Memory) -> str:
    """`red redmo blue none`: a slot stands before its word, so that a reader finds the word where the slot is read."""
    return " ".join(f"{slot} {word}" for slot, word in memory.items())


def parse_memory(text: str, asked: Sequence[str]) -> dict[str, str]:
    """What a text in the form of `format_memory` says: the word after the first mention of each slot, `NONE` where
    there is none."""
    words = text.split()
    return {slot: words[words.index(slot) + 1] if slot in words[:-1] else NONE for slot in asked}
