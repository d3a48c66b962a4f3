"""Reads what a run stored and asks the rules what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.config.shown import read_shown
from turnwise.core.errors import DataError, StoreError
from turnwise.core.roles import split_roles
from turnwise.diagnosis.facts import GroupFacts, describe_group
from turnwise.diagnosis.record import Record
from turnwise.diagnosis.rules import Diagnosis, diagnose
from turnwise.reporting.summaries import is_control, load_summaries
from turnwise.store.advantages import load_advantages
from turnwise.store.groups import GroupStore
from turnwise.store.ledger import GroupAccount, load_accounts
from turnwise.store.run_folder import CONFIG, EVENTS, RunFolder, read_lines

MOST_GROUPS = 400
"""Most groups that are read, spread over all steps: reading one takes some milliseconds."""


def diagnose_run(path: Path) -> Diagnosis:
    """Say what is wrong with a run, finished, interrupted or running. Writes nothing.

    Raises StoreError where `path` is no run or a file of it is damaged, DataError where it has no RL step and no error
    has ended it."""
    return diagnose(load_record(path))


def load_record(path: Path) -> Record:
    """Load what the rules read of a run; see `diagnose_run`."""
    run = RunFolder.open(path)
    steps = [row for row in run.read_metrics() if row["phase"] == "train"]
    ended = _find_end(list(read_lines(path / EVENTS)))
    if not steps and not ended:
        raise DataError(
            f"{path} has no metrics of an RL step, so there is nothing to diagnose yet; train it (train.steps above 0)"
        )
    accounts = [account for account in load_accounts(path) if account.fate == "trained"]
    return Record(
        steps=steps,
        options=read_shown(path / CONFIG).table,
        summaries=[summary for summary in load_summaries(path) if not is_control(summary)],
        compared=_load_compared(path),
        groups=_load_facts(path, accounts),
        context_trained=sum(account.context_trained for account in accounts),
        ended=ended,
    )


def _load_compared(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the comparison that a finished run has stored; none where it could not be made."""
    stored = sorted((path / "evaluations").glob("compared_*.json"))
    if not stored:
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(stored[-1].read_bytes()).get("rows", [])
    except (OSError, ValueError, AttributeError) as cause:
        raise StoreError(f"cannot read {stored[-1]} ({cause}); delete it, and it is left out") from cause
    return rows


def _find_end(events: Sequence[dict[str, Any]]) -> str:
    """Return the error with which a run ended last; "" if it has been resumed since, or told none."""
    for event in reversed(events):
        if event["kind"] in ("resumed", "created"):
            return ""
        if event["kind"] == "error":
            return str(event["text"])
    return ""


def _load_facts(path: Path, accounts: Sequence[GroupAccount]) -> list[GroupFacts]:
    """Load the facts of the groups that trained, or of so many spread over the run."""
    store = GroupStore(path)
    stored = set(store.list_draws())
    draws = {account.draw: account.step for account in accounts if account.draw in stored}
    chosen = sorted(draws, key=lambda draw: (draws[draw], draw))
    if len(chosen) > MOST_GROUPS:
        chosen = [chosen[place * len(chosen) // MOST_GROUPS] for place in range(MOST_GROUPS)]
    facts, advantages = [], {}
    for draw in chosen:
        step = draws[draw]
        if step not in advantages:
            advantages = {step: load_advantages(path, step)}
        # Episodes of several roles have hidden hands and other players: alike attempts may well be paid apart.
        parts = split_roles(store.load(draw))
        if len(parts) == 1:
            facts.append(describe_group(parts[0], step, advantages[step]))
    return facts
