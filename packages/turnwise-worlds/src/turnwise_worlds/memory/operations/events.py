"""A stream of events about slots that open, change and end. Pure functions of a seed.

    redka     red has the value ka: it opens, or its value changes
    endred    red is over, and will not be asked about
    hmka      small talk

Never more than `max_open` slots are open. So a store of that many lines can hold everything that may be asked about, if
changes overwrite, ended slots are deleted, and small talk is not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from turnwise.core.seeds import rng
from turnwise_worlds.memory.operations.store import NOOP, Lines, apply, look_up
from turnwise_worlds.memory.words import NONE, SLOTS, VALUES, slot_of

END, TALK = "end", "hm"
"""Prefixes of such words; a slot or a value follows."""
TALK_SHARE = 0.15
"""Probability that an event is small talk."""
OPEN_SHARE = 0.6
"""Probability that another event opens a slot, while further slots may be opened."""
CHANGE_SHARE = 0.4
"""Probability that an event about an open slot changes it; otherwise the slot ends, unless it is the last open one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Events to be read, and the question at the end."""

    words: tuple[str, ...]
    asked: str
    """A slot that is open at the end."""
    answer: str
    """The word of that slot."""


def build_events(seed: int, *, count: int, max_open: int) -> Events:
    """Build the events of a seed; `count` is at least 1."""
    random = rng(seed, "events", count, max_open)
    lines: Lines = ()
    words: list[str] = []
    for _ in range(count):
        words.append(_draw(lines, max_open, random))
        lines = apply(lines, choose_operation(lines, words[-1]))
    answer = random.choice(lines)
    return Events(words=tuple(words), asked=slot_of(answer) or "", answer=answer)


def _draw(lines: Lines, max_open: int, random: Random) -> str:
    """Draw an event that leaves at least one slot open; `lines` are those of the slots open before it."""
    if lines and random.random() < TALK_SHARE:
        return TALK + random.choice(VALUES)
    if not lines or (len(lines) < max_open and random.random() < OPEN_SHARE):
        closed = [slot for slot in SLOTS if look_up(lines, slot) is None]
        return random.choice(closed) + random.choice(VALUES)
    known = random.choice(lines)
    slot = slot_of(known) or ""
    if len(lines) == 1 or random.random() < CHANGE_SHARE:
        return random.choice([word for value in VALUES if (word := slot + value) != known])
    return END + slot


def choose_operation(lines: Lines, word: str) -> str:
    """Return the reply to an event that keeps a store in order."""
    slot = slot_of(word)
    if slot is not None:
        old = look_up(lines, slot)
        return f"{slot} {old or NONE} {word} {'update' if old else 'add'}"
    if word.startswith(END):
        slot = word.removeprefix(END)
        return f"{slot} {look_up(lines, slot) or NONE} delete"
    return NOOP


def choose_untidy(lines: Lines, word: str) -> str:
    """Return a reply that records everything and deletes nothing."""
    slot = slot_of(word)
    if slot is not None:
        return f"{slot} {look_up(lines, slot) or NONE} {word} add"
    return NOOP if word.startswith(END) else f"{TALK} {NONE} {word} add"
