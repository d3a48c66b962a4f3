"""What a row of the table of kinds is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from turnwise.synthesis.bugs.edits.source import Edit, Scope, Source

Finder = Callable[[Source, Scope, random.Random], Iterable[Edit]]
"""Lists the edits of one kind in one scope, in the order of the text. The random numbers choose orders of shuffles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way to plant a bug."""

    name: str
    find: Finder
    explanation: str
    """What is wrong with the code afterwards, as one clause that names no place."""
    in_class: bool = False
    """Whether it edits the body of a class instead of that of a function."""
    likelihood: float | None = None
    """Probability of each edit, of which at least one is made; None makes exactly one."""
    min_complexity: int = 1
    """Scopes with fewer branches are left alone."""
    screened: bool = True
    """Whether a swap of the function's code shows the bug. Defaults and class bodies exist before it."""
