"""What the rules read of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance
from typing import Any

from turnwise.diagnosis import thresholds
from turnwise.diagnosis.facts import GroupFacts

PAID = "the reward that trains"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The mean of a series in its first and in its last steps."""

    name: str
    before: float
    after: float
    error: float
    """Standard error of the difference, from the spread of the steps within both ends."""
    first: tuple[int, int]
    last: tuple[int, int]
    """First and last step of both ends."""

    @property
    def rise(self) -> float:
        """How much the later mean is above the earlier one."""
        return self.after - self.before

    def is_up(self, least: float, deviations: float = 3.0) -> bool:
        """Whether it rose by `least`, and by so many standard errors."""
        return self.rise >= least and self.rise >= deviations * self.error

    def is_down(self, least: float, deviations: float = 3.0) -> bool:
        """Whether it fell by `least`, and by so many standard errors."""
        return -self.rise >= least and -self.rise >= deviations * self.error

    def __str__(self) -> str:
        return (
            f"{self.name} {self.before:.3g} in steps {self.first[0]} to {self.first[1]} and {self.after:.3g} in steps "
            f"{self.last[0]} to {self.last[1]}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A run, or its beginning."""

    steps: Sequence[Mapping[str, float | None]]
    """Metrics of every RL step, with its number as `step`, in order; a value that is None was not finite."""
    options: Mapping[str, Any]
    """The resolved recipe, section by section."""
    summaries: Sequence[Mapping[str, Any]] = ()
    """Held-out evaluations without controls, in the order of their steps."""
    compared: Sequence[Mapping[str, Any]] = ()
    """The last evaluation against the first, paired by task, a row per kind of task (`evaluation.comparison`); empty
    before a run has ended."""
    groups: Sequence[GroupFacts] = ()
    """Groups that trained, in the order of their steps; empty while a run is watched, which has the metrics alone."""
    context_trained: int = 0
    """Observation tokens that trained, as the ledger counts them."""
    ended: str = ""
    """The error that ended the run; "" if none is known."""
    _series: dict[str, list[tuple[int, float]]] = field(default_factory=dict, repr=False, compare=False)

    def series(self, name: str) -> list[tuple[int, float]]:
        """Return a metric as pairs of step and value, without steps that have none."""
        if name not in self._series:
            pairs = ((int(row["step"] or 0), row.get(name)) for row in self.steps)
            self._series[name] = [(step, value) for step, value in pairs if value is not None]
        return self._series[name]

    def mean(self, name: str) -> float | None:
        """Return a metric's mean over all steps; None if it was never measured."""
        values = [value for _, value in self.series(name)]
        return fmean(values) if values else None

    def first(self, name: str) -> float:
        """Return a metric's first value: that of the policy from which RL started; 0 if it was never measured."""
        pairs = self.series(name)
        return pairs[0][1] if pairs else 0.0

    def change(self, name: str) -> Change | None:
        """Compare a metric's first with its last steps: a third of them each, at most 10. None with fewer than 4."""
        pairs = self.series(name)
        size = min(len(pairs) // 3 or len(pairs) // 2, 10)
        if len(pairs) < 4:
            return None
        first, last = pairs[:size], pairs[-size:]
        return Change(
            name=name,
            before=fmean(value for _, value in first),
            after=fmean(value for _, value in last),
            error=math.sqrt((_vary(first) + _vary(last)) / size),
            first=(first[0][0], first[-1][0]),
            last=(last[0][0], last[-1][0]),
        )

    @property
    def truth(self) -> Change | None:
        """How success in training changed, or the environment's reward where it has no such part."""
        return self.change("rollout/success") or self.change("rollout/reward")

    @property
    def paid(self) -> Change | None:
        """How the reward that trains changed: the sum of the recipe's `[rewards]`, or the environment's."""
        terms = {key for row in self.steps for key in row if key.startswith("term/") and key.endswith("_contribution")}
        if not terms:
            return self.change("rollout/reward")
        if PAID not in self._series:
            sums = [(int(row["step"] or 0), math.fsum(row.get(term) or 0.0 for term in terms)) for row in self.steps]
            self._series[PAID] = sums
        return self.change(PAID)

    @property
    def heldout(self) -> list[Mapping[str, Any]]:
        """The rows of the evaluations over all kinds of task, without those that scored nothing."""
        rows = [row for summary in self.summaries for row in summary["rows"] if row["kind"] == "all"]
        return [row for row in rows if row["n"]]

    @property
    def learned(self) -> bool:
        """Whether success rose: beyond the intervals of the first and the last evaluation, or else in training if it
        did not fall beyond them."""
        truth, rows = self.truth, self.heldout
        if len(rows) > 1 and rows[-1]["low"] > rows[0]["high"]:
            return True
        if len(rows) > 1 and rows[-1]["high"] < rows[0]["low"]:
            return False
        return truth is not None and truth.is_up(thresholds.LEAST_CHANGE, thresholds.DEVIATIONS)

    @property
    def may_learn(self) -> bool:
        """Whether it learned, or success in training rose by as much as counts: then nothing got "not better"."""
        truth, rows = self.truth, self.heldout
        fell = len(rows) > 1 and rows[-1]["high"] < rows[0]["low"]
        return self.learned or (not fell and truth is not None and truth.rise >= thresholds.LEAST_CHANGE)

    def option(self, path: str, default: Any = None) -> Any:
        """Return an option of the recipe, such as "loss.kl.coefficient"; `default` if the recipe has none."""
        at: Any = self.options
        for name in path.split("."):
            if not isinstance(at, Mapping) or name not in at:
                return default
            at = at[name]
        return at


def _vary(pairs: Sequence[tuple[int, float]]) -> float:
    return variance([value for _, value in pairs]) if len(pairs) > 1 else 0.0
