"""The rules of `turnwise diagnose` while a run goes on, on its metrics alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnwise.diagnosis.findings import OUTCOME
from turnwise.diagnosis.record import Record
from turnwise.diagnosis.rules import diagnose

FIRST_STEP = 8
"""RL steps before the first diagnosis: what has not risen yet may still rise."""
EARLY = {"lr_low", "too_easy", "entropy_collapse"}
"""Causes that a run is not accused of before its end: later steps may refute them."""


class DiagnosisWatch:
    """Keeps the metrics of a run's steps, and diagnoses it after each."""

    def __init__(self, options: Mapping[str, Any], read_rows: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        """`options` is the resolved recipe, section by section; `read_rows` reads the rows of metrics that the run has
        stored, and is called once, so that a resumed run knows its first steps."""
        self._options = options
        self._read_rows = read_rows
        self._rows: list[Mapping[str, Any]] | None = None

    def follow(self, step: int, values: Mapping[str, float | None]) -> list[str]:
        """Return alarms after RL step `step`, given its metrics: what is wrong, the evidence, and what to try first."""
        stored = [row for row in self._read_rows() if row["phase"] == "train"] if self._rows is None else self._rows
        self._rows = [row for row in stored if row["step"] < step] + [{**values, "step": step}]
        if len(self._rows) < FIRST_STEP:
            return []
        found = diagnose(Record(steps=self._rows, options=self._options)).findings
        return [
            f"alarm: {finding.problem}; {'; '.join(finding.evidence)}; try first: {finding.first} ({finding.cause} in "
            "docs/diagnosis.md)"
            for finding in found
            if finding.tier < OUTCOME and finding.cause not in EARLY
        ]
