"""Why each turn of a stored trajectory was credited as it was, by the run's own recipe and other methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwise.audit import explain
from turnwise.building.audited import read_audited_credit
from turnwise.config.load import load_resolved
from turnwise.store.run_folder import CONFIG, RunFolder


def explain_trajectory(run: Path, name: str, methods: Sequence[str]) -> explain.Explanation:
    """As `audit.explain.explain_trajectory`, with the credit of the run's recipe as its own; raises ConfigError, too,
    where that leads nowhere."""
    own = read_audited_credit(load_resolved(RunFolder.open(run).path / CONFIG))
    return explain.explain_trajectory(run, name, methods, own)
