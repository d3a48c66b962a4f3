"""Decides from a run's held-out evaluations which checkpoints are kept, and which one "best", "latest" or a step refers
to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from turnwise.core.errors import CheckpointError, ConfigError
from turnwise.store.checkpoint_folder import list_checkpoints, verify_checkpoint

BEST, LATEST = "best", "latest"


def read_successes(run: Path) -> dict[int, float]:
    """Return the held-out success that chooses, by RL step: on the selection set if the run has one, else on the tasks
    that are reported; without controls and without evaluations that cannot be read."""
    rows = read_rows(run, "heldout-selection") or read_rows(run, "heldout")
    return {step: float(row["success"]) for step, row in rows.items()}


def read_rows(run: Path, kind: str) -> dict[int, dict[str, Any]]:
    """Return the row of all tasks by RL step, from the evaluations of a `kind` that the run itself made ("heldout", or
    "heldout-NAME" of a set)."""
    found: dict[int, dict[str, Any]] = {}
    for path in (run / "evaluations").glob(f"{kind}_*.summary.json"):
        match = re.fullmatch(rf"{re.escape(kind)}_(\d+)\.summary\.json", path.name)
        try:
            rows = json.loads(path.read_bytes())["rows"] if match else []
            found |= {
                int(match[1]): row for row in rows if match and row["kind"] == "all" and float(row["success"]) >= 0
            }
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def rank_steps(successes: dict[int, float]) -> list[int]:
    """Sort steps by success, best first; among equal ones the later first."""
    return sorted(successes, key=lambda step: (successes[step], step), reverse=True)


def list_kept(run: Path, *, best: int, every: int) -> set[int]:
    """Return the steps whose checkpoints are kept regardless of age: the first, the `best` with the highest held-out
    success, and every multiple of `every` (0: none)."""
    steps = [step for step, _ in list_checkpoints(run)]
    ranked = [step for step in rank_steps(read_successes(run)) if step in steps]
    return {0, *ranked[:best], *(step for step in steps if every and step % every == 0)}


def find_checkpoint_of(run: Path, step: int | str | None) -> Path:
    """Return the complete checkpoint that `step` refers to: a number, "latest" (or None), or "best", the one with the
    highest held-out success. Raises CheckpointError if it is not intact, ConfigError for another word."""
    checkpoints = dict(list_checkpoints(run))
    if not checkpoints:
        raise CheckpointError(f"run {run} has no checkpoint yet; train it first")
    if isinstance(step, str) and step.isdecimal():
        step = int(step)
    if step is None or step == LATEST:
        step = max(checkpoints)
    elif step == BEST:
        ranked = [each for each in rank_steps(read_successes(run)) if each in checkpoints]
        if not ranked:
            raise CheckpointError(
                f"run {run} has no checkpoint of an evaluated step, so none is the best; set evaluate.every and "
                "train.keep_best to keep it. This run has checkpoints for steps: " + ", ".join(map(str, checkpoints))
            )
        step = ranked[0]
    elif not isinstance(step, int):
        raise ConfigError(f"{step!r} is not a step; use a number, 'latest' or 'best'")
    path = run / "checkpoints" / f"step_{step:06d}"
    verify_checkpoint(path)
    return path
