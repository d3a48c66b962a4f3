"""Where an attempt first leaves what would have succeeded: what every method returns, and values to divergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Method = Literal["oracle", "continuations", "critic", "judge"]
METHODS: dict[Method, str] = {
    "oracle": "the oracle's plan: the first reply after which it needs no fewer replies than before",
    "continuations": "continuations of the policy from each turn: the reply with the largest fall of their success",
    "critic": "the run's value model: the reply with the largest fall of the value",
    "judge": "a judge: the reply that it calls the first wrong one",
}
"""How a divergence is found, in the order in which the first that is possible is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where an attempt left what would have succeeded."""

    method: Method
    turn: int
    """Index of the first turn that leaves it."""
    lost: int | None = None
    """Index of the first turn after which the method no longer reaches success; None where it cannot tell."""
    values: tuple[float | None, ...] = ()
    """What the method measured before each turn: replies that the oracle still needs (None: it no longer succeeds),
    success of continuations, values; empty of a judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """No divergence was found."""

    reason: str


def find_largest_fall(method: Method, values: Sequence[float], *, end: float = 0.0) -> Divergence | Unknown:
    """Return the turn with the largest fall of a value, from before the turn to before the next, the earliest of equal
    ones; after the last turn the value is `end`, that of the failed attempt.

    With 0.75, 0.75, 0.25: turn 1 loses 0.5, turn 2 loses 0.25, so it is turn 1. Unknown if no turn lowers the value.
    """
    falls = [old - new for old, new in pairwise([*values, end])]
    if not falls or max(falls) <= 0:
        return Unknown(reason="no reply lowers the value, which is as low from the start as at the end")
    return Divergence(method=method, turn=falls.index(max(falls)), values=tuple(values))
