"""The confidence that a reply states, and scoring rules for it. Pure functions.

<confidence> 0.7 </confidence> <answer> red </answer>
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from turnwise.rewards.thoughts import drop_thoughts

Rule = Literal["brier", "log", "linear", "abstain"]

_STATEMENT = re.compile(r"(?:[^\W\d_]+[\s:,=]+)*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)")
"""Words, then a number: `0.9`, `source b: 0.6`."""


class Outcome(StrEnum):
    """What became of the confidence in a reply."""

    STATED = "stated"
    MISSING = "missing"
    """There is no closed tag outside the reply's thoughts."""
    SEVERAL = "several"
    """There is more than one, or an opening or closing tag of one; none is chosen, or a reply could hedge."""
    NO_NUMBER = "no_number"
    """The tag does not hold words and then one plain decimal: `90%`, `7/10`, `high`, `0,5`, `nan`, `1e-1`, `-0.2` and
    `0.7 or 0.2` are none."""
    OUTSIDE = "outside"
    """The number is above the scale. It is not cut: a reply that says 7 may mean 7 of 10, 7% or be sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """The confidence of one reply."""

    outcome: Outcome
    value: float | None = None
    """In [0, 1]; None unless the outcome is `STATED`."""
    text: str = ""
    """What the tag holds; empty if there is none, or if there are several."""


def read_confidence(reply: str, tag: str = "confidence", scale: float = 1.0) -> Stated:
    """Read the confidence between `<tag>` and `</tag>` outside a reply's thoughts: its number over `scale`. Total: any
    text has an outcome."""
    said = drop_thoughts(reply)
    name = re.escape(tag)
    found = re.findall(rf"<{name}>((?:(?!<{name}>).)*?)</{name}>", said, re.DOTALL)
    if len(found) != 1 or said.count(f"<{tag}>") > 1 or said.count(f"</{tag}>") > 1:
        return Stated(outcome=Outcome.SEVERAL if found else Outcome.MISSING)
    text = found[0].strip()
    statement = _STATEMENT.fullmatch(text)
    if statement is None:
        return Stated(outcome=Outcome.NO_NUMBER, text=text)
    value = float(statement[1]) / scale
    if value > 1:
        return Stated(outcome=Outcome.OUTSIDE, text=text)
    return Stated(outcome=Outcome.STATED, value=value, text=text)


def compute_score(rule: Rule, confidence: float, right: bool, *, floor: float = 0.01, threshold: float = 0.5) -> float:
    """Score a confidence c in [0, 1] against whether the answer is right, y in {0, 1}.

        brier     1 - (c - y)^2                                          in [0, 1]; strictly proper (Brier 1950)
        log       1 - log(q) / log(floor), q = max(P, floor)             in [0, 1]; P = c if right, else 1 - c
        linear    1 - |c - y|                                            in [0, 1]; improper
        abstain   0 if c <= threshold, else 1 if right, else -threshold / (1 - threshold)

    A rule is proper if stating the true probability p is the best that one can do. The logarithmic rule (Good 1952) is
    strictly so between `floor` and 1 - `floor`; it is scaled to 0 at the floor, where the original is -infinity.
    Under `linear` the best statement is 1 for p above 1/2 and 0 below: its expectation p c + (1 - p)(1 - c) is linear
    in c. `abstain` answers if and only if c exceeds the threshold; its expectation is above 0 exactly if p exceeds it,
    and it tells nothing else about c (arXiv 2509.04664 states the payoffs).

    Raises ValueError if confidence, floor or threshold are out of range.
    """
    if not 0 <= confidence <= 1:
        raise ValueError(f"a confidence of {confidence} is not between 0 and 1")
    if not 0 < floor < 0.5:
        raise ValueError(f"floor={floor} is not between 0 and 0.5")
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold={threshold} is not between 0 and 1 (without 1)")
    given = confidence if right else 1 - confidence
    if rule == "brier":
        return 1 - (1 - given) ** 2
    if rule == "log":
        return 1 - math.log(max(given, floor)) / math.log(floor)
    if rule == "linear":
        return given
    if confidence <= threshold:
        return 0.0
    return 1.0 if right else -threshold / (1 - threshold)
