"""What stated confidences are worth: Brier score and its decomposition, calibration error, and risk against coverage.

Pure functions of pairs (c, y): a confidence in [0, 1] and whether the answer was right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

Pairs = Sequence[tuple[float, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """The Brier score and what it is made of: `brier = reliability - resolution + uncertainty`, exactly."""

    count: int
    accuracy: float
    """Share of right answers, o."""
    brier: float
    """Mean of `(c - y)^2`; lower is better."""
    reliability: float
    """Weighted mean over the values of c of `(c - o_c)^2`, with o_c the share of right answers where c was stated; 0 if
    every value means what it says."""
    resolution: float
    """Weighted mean of `(o_c - o)^2`; 0 for one value, whatever it is."""
    uncertainty: float
    """`o (1 - o)`: the Brier score of the best constant, which states o."""
    calibration_error: float
    """Weighted mean of `|c - o_c|` (ECE with one bin per value). A constant that states o has 0."""
    values: int
    """Number of different values stated."""

    @property
    def ratio(self) -> float | None:
        """The Brier score over the best constant's; None if all answers are right or all are wrong, so that a constant
        makes no mistake."""
        return self.brier / self.uncertainty if self.uncertainty else None


def decompose(pairs: Pairs) -> Decomposition:
    """Decompose the Brier score (Murphy 1973), with one bin per stated value, so that nothing is lost to binning.

    Raises ValueError without pairs and for a confidence outside [0, 1].
    """
    if not pairs:
        raise ValueError("there is no stated confidence to decompose")
    bins: dict[float, list[bool]] = defaultdict(list)
    for confidence, right in pairs:
        if not 0 <= confidence <= 1:
            raise ValueError(f"a confidence of {confidence} is not between 0 and 1")
        bins[confidence].append(right)
    count = len(pairs)
    accuracy = sum(right for _, right in pairs) / count
    shares = {value: (len(rights) / count, sum(rights) / len(rights)) for value, rights in bins.items()}
    return Decomposition(
        count=count,
        accuracy=accuracy,
        brier=sum((confidence - right) ** 2 for confidence, right in pairs) / count,
        reliability=sum(weight * (value - mean) ** 2 for value, (weight, mean) in shares.items()),
        resolution=sum(weight * (mean - accuracy) ** 2 for weight, mean in shares.values()),
        uncertainty=accuracy * (1 - accuracy),
        calibration_error=sum(weight * abs(value - mean) for value, (weight, mean) in shares.items()),
        values=len(shares),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What happens if only answers above a threshold are given."""

    threshold: float
    """The lowest confidence that is answered; answers below it are withheld."""
    coverage: float
    """Share of questions answered."""
    risk: float
    """Share of the given answers that are wrong."""
    answered: int
    wrong: int


def trace_coverage(pairs: Pairs) -> list[Coverage]:
    """Return risk against coverage (El-Yaniv and Wiener 2010), one point per stated value, from the surest answers to
    all of them. Answers of one confidence are given together, since nothing tells them apart."""
    points: list[Coverage] = []
    for threshold in sorted({confidence for confidence, _ in pairs}, reverse=True):
        given = [right for confidence, right in pairs if confidence >= threshold]
        wrong = given.count(False)
        points.append(
            Coverage(
                threshold=threshold,
                coverage=len(given) / len(pairs),
                risk=wrong / len(given),
                answered=len(given),
                wrong=wrong,
            )
        )
    return points


def compute_risk_area(pairs: Pairs) -> float:
    """Return the mean risk over all coverages (AURC, Geifman and El-Yaniv 2017): lower is better, and confidences
    that tell nothing give the error rate. Among equal confidences the order is taken as random: the risk is the
    expected one.

    Raises ValueError without pairs.
    """
    if not pairs:
        raise ValueError("there is no stated confidence to draw a risk for")
    total, answered, wrong = 0.0, 0, 0
    for threshold in sorted({confidence for confidence, _ in pairs}, reverse=True):
        tied = [right for confidence, right in pairs if confidence == threshold]
        share = tied.count(False) / len(tied)
        total += sum((wrong + share * number) / (answered + number) for number in range(1, len(tied) + 1))
        answered, wrong = answered + len(tied), wrong + tied.count(False)
    return total / len(pairs)
