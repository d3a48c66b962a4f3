"""Calibration error as HLE's and BrowseComp-Plus's evaluations compute it, and without their faults. BrowseComp reports
such an error and publishes no code for it.

The original (the calibration tools of Hendrycks et al., arXiv 1812.04606) sorts answers by stated confidence, cuts them
into bins of 100, lets the last bin take the rest, and returns the root of the weighted mean of the squared differences
between mean confidence and accuracy. Three things go wrong there: its loop leaves out the last bin, which holds the
surest answers (public report: texttron/BrowseComp-Plus #18); it fails with fewer answers than a bin has; and a reply
that states no confidence counts as 100% sure. Here the last bin is counted, fewer answers are one bin, and replies
without a confidence are counted apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from turnwise.rewards.thoughts import drop_thoughts

BIN_SIZE = 100
"""Answers per bin, of the original."""
_LINE = re.compile(r"^[ \t*_#-]*confidence[ \t*_]*:[ \t*_]*(?P<value>[^\n]*)$", re.IGNORECASE | re.MULTILINE)
_PERCENT = re.compile(r"(?P<number>\d{1,3}(?:\.\d+)?)\s*(?P<sign>%?)[ \t*_.]*")


class Outcome(StrEnum):
    """What became of the confidence in a reply."""

    STATED = "stated"
    MISSING = "missing"
    """No line begins with "Confidence:"."""
    SEVERAL = "several"
    """Several lines do, with different values."""
    NO_NUMBER = "no_number"
    """The line is not one number: "high", "7/10", "80-90%"."""
    OUTSIDE = "outside"
    """The number is above 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """The confidence of one reply."""

    outcome: Outcome
    value: float | None = None
    """In [0, 1]; None unless the outcome is `STATED`."""


def read_confidence(reply: str) -> Stated:
    """Read the line "Confidence: N%" of a reply, outside its thoughts. N is a percentage with or without its sign: 0.9
    is 0.9%, since the question asks for percent. Total: any text has an outcome."""
    lines = {match["value"].strip() for match in _LINE.finditer(drop_thoughts(reply))}
    if len(lines) != 1:
        return Stated(outcome=Outcome.SEVERAL if lines else Outcome.MISSING)
    found = _PERCENT.fullmatch(lines.pop())
    if found is None:
        return Stated(outcome=Outcome.NO_NUMBER)
    value = float(found["number"]) / 100
    return Stated(outcome=Outcome.OUTSIDE) if value > 1 else Stated(outcome=Outcome.STATED, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Answers of similar confidence."""

    count: int
    confidence: float
    """Mean stated confidence."""
    accuracy: float


def bin_by_confidence(pairs: Sequence[tuple[float, bool]], bin_size: int = BIN_SIZE) -> list[Bin]:
    """Return bins of `bin_size` answers each in the order of confidence, the last one with the rest: with 250 answers
    and bins of 100 they have 100 and 150. Equal confidences keep the order in which they are given, so that their bin
    may depend on it, as in the original.

    Raises ValueError without pairs, for a confidence outside [0, 1] and for bins without answers.
    """
    if not pairs or bin_size < 1:
        raise ValueError(f"{len(pairs)} answers in bins of {bin_size} cannot be compared with their confidence")
    if not all(0 <= confidence <= 1 for confidence, _ in pairs):
        raise ValueError("a confidence is not between 0 and 1")
    ordered = sorted(pairs, key=lambda pair: pair[0])
    num_bins = max(1, len(ordered) // bin_size)
    cuts = [*(number * bin_size for number in range(num_bins)), len(ordered)]
    bins = []
    for start, end in pairwise(cuts):
        part = ordered[start:end]
        bins.append(
            Bin(
                count=len(part),
                confidence=math.fsum(confidence for confidence, _ in part) / len(part),
                accuracy=sum(right for _, right in part) / len(part),
            )
        )
    return bins


def compute_calibration_error(bins: Sequence[Bin], *, as_published: bool = False) -> float:
    """Return the root mean square calibration error, in [0, 1].

    With `as_published` the last of several bins is left out, while its answers stay in the total: the published
    figures are computed so.
    """
    total = sum(each.count for each in bins)
    counted = bins[:-1] if as_published and len(bins) > 1 else bins
    return math.sqrt(math.fsum(each.count / total * (each.confidence - each.accuracy) ** 2 for each in counted))
