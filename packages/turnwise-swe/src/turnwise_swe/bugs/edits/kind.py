"""The type of a row in the table of kinds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from turnwise_swe.bugs.edits.source import Edit, Scope, Source

Finder = Callable[[Source, Scope, random.Random], Iterable[Edit]]
"""Lists the edits of one kind in one scope, in the order of the text. Random numbers only choose the order of
shuffles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way to plant a bug."""

    name: str
    find: Finder
    explanation: str
    """What is wrong with the edited code, as one clause that does not name the place."""
    in_class: bool = False
    """Whether the kind edits the body of a class instead of that of a function."""
    likelihood: float | None = None
    """Probability of each edit, of which at least one is made; None makes exactly one."""
    min_complexity: int = 1
    """Minimum number of branches: simpler scopes are not edited."""
    screened: bool = True
    """Whether swapping the function's code shows the bug. Defaults and class bodies are evaluated earlier."""
