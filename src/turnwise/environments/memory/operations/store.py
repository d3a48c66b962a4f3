"""The bounded store, and what a reply does to it. Pure functions of lines.

A line is a word, a slot with its value ("redka"). A reply names a slot, the line that the store has of it, and what
becomes of that line:

    red none redka add        a further line
    red redka redmi update    takes the place of the line, if the store has it
    red redmi delete          the line goes
    noop                      nothing

The old line is in the reply, as in Memory-R1's updates: so it is read where its slot stands, and the operation is
chosen where it is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.environments.memory.words import slot_of

Lines = tuple[str, ...]
NOOP = "noop"


def apply(lines: Lines, reply: str) -> Lines:
    """The lines after a reply. What is no operation changes nothing."""
    match reply.split():
        case [_, _, word, "add"]:
            return (*lines, word)
        case [_, old, word, "update"] if old in lines:
            return (*_drop(lines, old), word)
        case [_, old, "delete"]:
            return _drop(lines, old)
    return lines


def look_up(lines: Sequence[str], slot: str | None) -> str | None:
    """The slot's last line; None where there is none, or no slot is meant."""
    return next((line for line in reversed(lines) if slot is not None and slot_of(line) == slot), None)


def _drop(lines: Lines, old: str) -> Lines:
    return tuple(line for line in lines if line != old)
