"""Finds what is proven in a run folder whose journal lines cannot follow one another: two processes wrote it, or it was
damaged.

The journal keeps every line that can follow those before it. A checkpoint of step c is *proven* if the journal's line
for step c has its checksums, the stored groups are those that the journal says were taken or dropped until then, and
the ledger has one account for each. From a proven checkpoint the run continues as after a crash: later steps are redone
from the stored groups if these match the journal, and are sampled again if not."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import CheckpointError, StoreError
from turnwise.store.checkpoint_folder import list_checkpoints, verify_checkpoint
from turnwise.store.groups import GroupStore
from turnwise.store.journal import JOURNAL, JournalState, fold_journal, fold_possible, read_journal
from turnwise.store.ledger import load_accounts, parse_account
from turnwise.store.run_folder import (
    EVENTS,
    LEDGER,
    METRICS,
    disk_error,
    read_lines,
    to_line,
    write_bytes_atomic,
)

DAMAGED = "damaged"
"""Folder in the run for what was set aside, by time."""
SumWeights = Callable[[Path], Mapping[str, int]]
"""Computes the checksums of the weights in a checkpoint folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """The part of a run that is kept."""

    problem: str
    """What is wrong, as reported by a reader."""
    step: int
    """Step of the last proven checkpoint."""
    last: int
    """Step of the last checkpoint."""
    journal: list[dict[str, Any]]
    num_left_out: int
    """Number of journal lines that are not kept."""


def find_problem(run: Path) -> str | None:
    """Return why a run cannot be continued or audited as it is; None if its lines follow one another. Raises StoreError
    for a run in another format."""
    try:
        read_journal(run)
        load_accounts(run)
        for name in (METRICS, EVENTS):
            for _ in read_lines(run / name):
                pass
    except StoreError as error:
        return str(error)
    return None


def plan_salvage(run: Path, sum_weights: SumWeights, problem: str) -> Salvage | None:
    """Return what can be kept of a run with a `problem`; None if no checkpoint is proven."""
    rows = list(_read_possible(run / JOURNAL))
    kept = fold_possible(rows)
    state = fold_journal(kept, source=run / JOURNAL)
    checkpoints = list_checkpoints(run)
    for step, path in reversed(checkpoints):
        if _is_proven(run, state, step, path, sum_weights):
            return Salvage(
                problem=problem,
                step=step,
                last=checkpoints[-1][0],
                journal=kept,
                num_left_out=_count_lines(run / JOURNAL) - len(kept),
            )
    return None


def apply_salvage(run: Path, salvage: Salvage) -> Path:
    """Set aside what is not kept, and write what is; returns the folder with everything that was there. The journal is
    written last: a crash before that leaves a run with the same problem and the same remedy. Raises StoreError."""
    aside = run / DAMAGED / time.strftime("%Y%m%d-%H%M%S")
    state = fold_journal(salvage.journal, source=run / JOURNAL)
    try:
        aside.mkdir(parents=True, exist_ok=True)
        for name in (JOURNAL, LEDGER, METRICS, EVENTS):
            if (run / name).exists():
                shutil.copy2(run / name, aside / name)
        for step, path in list_checkpoints(run):
            if step > salvage.step:
                os.rename(path, aside / path.name)
        store = GroupStore(run)
        store.set_aside([draw for draw in store.list_draws() if draw not in state.draws], aside)
    except OSError as cause:
        raise disk_error("set aside", aside, cause) from cause
    accounts = _choose_accounts(run, state, salvage.step)
    assert accounts is not None
    _write(run / LEDGER, accounts)
    _write(run / METRICS, _choose_metrics(_read_possible(run / METRICS), accounts))
    _write(run / EVENTS, _read_possible(run / EVENTS))
    _write(run / JOURNAL, salvage.journal)
    return aside


def _is_proven(run: Path, state: JournalState, step: int, path: Path, sum_weights: SumWeights) -> bool:
    """Whether journal, groups and ledger agree about everything until the checkpoint of a step."""
    trained = state.trained.get(step)
    if step and trained is None:
        return False
    try:
        verify_checkpoint(path)
        if _choose_accounts(run, state, step) is None:
            return False
        store = GroupStore(run)
        for record in state.draws.values():
            if record.step is not None and record.step <= step and record.digest is not None:
                store.read(record.draw, digest=record.digest)
        return trained is None or dict(trained.sums) == dict(sum_weights(path))
    except (StoreError, CheckpointError):
        return False


def _choose_accounts(run: Path, state: JournalState, step: int) -> list[dict[str, Any]] | None:
    """Return the ledger's lines until a step, one per draw and role; None if a draw has none, or different ones."""
    chosen: dict[tuple[int, str], dict[str, Any]] = {}
    for row in _read_possible(run / LEDGER):
        try:
            account = parse_account(row)
        except ValueError:
            continue
        record = state.draws.get(account.draw)
        if record is None or record.step is None or record.step != account.step or account.step > step:
            continue
        if chosen.setdefault((account.draw, account.role), row) != row:
            return None
    draws = {draw for draw, _ in chosen}
    needed = {
        record.draw
        for record in state.draws.values()
        if record.step is not None and record.step <= step and record.digest is not None
    }
    return list(chosen.values()) if needed <= draws else None


def _choose_metrics(rows: Iterable[dict[str, Any]], accounts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per phase and step: of several the first whose sampled tokens are those of the step's accounts, as
    the processes may have dropped different groups before it."""
    sampled: Counter[int] = Counter()
    for account in accounts:
        sampled[account["step"]] += account["sampled"]
    chosen: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        expected = sampled.get(row["step"]) if row["phase"] == "train" else None
        if expected is None or row.get("rollout/sampled_tokens", expected) == expected:
            chosen.setdefault((row["phase"], row["step"]), row)
    return list(chosen.values())


def _read_possible(path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the lines that are JSON objects."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    except OSError as cause:
        raise StoreError(f"cannot read {path}: {cause.strerror or cause}; check its permissions") from cause
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _write(path: Path, rows: Any) -> None:
    write_bytes_atomic(path, b"".join(to_line(row) for row in rows))
