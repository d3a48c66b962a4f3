"""The bounded store, and what a reply does to it. Pure functions of lines.

A line is a word, a slot with its value ("redka"). A reply is a word and the operation on it:

    redka add       a further line
    redka update    takes the place of the slot's lines, if it has one
    red delete      the slot's lines go
    noop            nothing
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.environments.memory.words import slot_of

Lines = tuple[str, ...]
NOOP = "noop"


def apply(lines: Lines, reply: str) -> Lines:
    """The lines after a reply. What is no operation changes nothing."""
    match reply.split():
        case [word, "add"]:
            return (*lines, word)
        case [word, "update"] if look_up(lines, slot_of(word)) is not None:
            return (*_drop(lines, slot_of(word)), word)
        case [slot, "delete"]:
            return _drop(lines, slot)
    return lines


def look_up(lines: Sequence[str], slot: str | None) -> str | None:
    """The slot's last line; None where there is none, or no slot is meant."""
    return next((line for line in reversed(lines) if slot is not None and slot_of(line) == slot), None)


def _drop(lines: Lines, slot: str | None) -> Lines:
    return tuple(line for line in lines if slot_of(line) != slot)
