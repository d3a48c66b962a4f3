"""A tiny language: operations on one number from 0 to 9, one after the other, run by a table. Nothing is ever executed.

dbl inc on 7    doubles 7 (modulo 10) and adds 1: 5
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

BASE = 10
MAX_OPERATIONS = 3

OPERATIONS: dict[str, Callable[[int], int | None]] = {
    "inc": lambda x: (x + 1) % BASE,
    "dec": lambda x: (x - 1) % BASE,
    "dbl": lambda x: 2 * x % BASE,
    "neg": lambda x: -x % BASE,
    "half": lambda x: x // 2,
    "sqr": lambda x: x * x % BASE,
    "far": lambda x: (x + 5) % BASE,
    "tri": lambda x: 3 * x % BASE,
    "cube": lambda x: x * x * x % BASE,
    "flip": lambda x: 9 - x,
    "seven": lambda x: (7 * x + 2) % BASE,
    "inv": lambda x: pow(x, -1, BASE) if x in (1, 3, 7, 9) else None,
}
"""Maps an operation to a function of a number, None if it is undefined; in order of decreasing frequency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Operations and the number with which they begin."""

    operations: tuple[str, ...]
    value: int

    @property
    def rarest(self) -> str:
        """The operation that comes last in the order of `OPERATIONS`."""
        order = list(OPERATIONS)
        return max(self.operations, key=order.index)

    @property
    def is_held_out(self) -> bool:
        """Whether only evaluations may use it: one in eight programs with at least two operations, by a hash."""
        digest = hashlib.blake2b(" ".join(self.operations).encode(), digest_size=1).digest()[0]
        return len(self.operations) > 1 and digest % 8 == 0


def format_program(program: Program) -> str:
    """Write a program: `dbl inc on 7`."""
    return f"{' '.join(program.operations)} on {program.value}"


def parse_program(text: str) -> Program | None:
    """Parse the program that a text denotes; None if it denotes none, or has more than `MAX_OPERATIONS`."""
    *operations, on, value = text.split() if len(text.split()) > 1 else ("", "", "")
    known = all(name in OPERATIONS for name in operations)
    if on != "on" or not known or len(operations) > MAX_OPERATIONS or value not in map(str, range(BASE)):
        return None
    return Program(operations=tuple(operations), value=int(value))


def run_program(program: Program) -> list[int] | None:
    """Return the number after every operation; None if an operation is undefined."""
    values: list[int] = []
    value: int | None = program.value
    for name in program.operations:
        value = OPERATIONS[name](value) if value is not None else None
        if value is None:
            return None
        values.append(value)
    return values
