"""The bounded store, and the effect of a reply. Pure functions of lines.

A line is a word, a slot with its value ("redka"). A reply names a slot, the store's line about it, and what happens to
that line:

    red none redka add        a further line
    red redka redmi update    takes the place of the line, if the store has it
    red redmi delete          the line goes
    noop                      nothing

The reply contains the old line, as in Memory-R1's updates: so the line is read next to its slot, and the operation is
chosen when the line is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise_worlds.memory.words import slot_of

Lines = tuple[str, ...]
NOOP = "noop"


def apply(lines: Lines, reply: str) -> Lines:
    """Return the lines after a reply. A reply that is not an operation changes nothing."""
    match reply.split():
        case [_, _, word, "add"]:
            return (*lines, word)
        case [_, old, word, "update"] if old in lines:
            return (*_drop(lines, old), word)
        case [_, old, "delete"]:
            return _drop(lines, old)
    return lines


def look_up(lines: Sequence[str], slot: str | None) -> str | None:
    """Return the slot's last line; None if there is none, or no slot is given."""
    return next((line for line in reversed(lines) if slot is not None and slot_of(line) == slot), None)


def _drop(lines: Lines, old: str) -> Lines:
    return tuple(line for line in lines if line != old)
