"""The journal of a run: the fate of every draw, one line before each effect, so that a crash loses no decision.

    {"kind": "opened", "draw": 12, "task": 12, "version": 3, "attempt": 0}    before its rollout starts
    {..., "pool": "hard"}                                                      what a curriculum drew it for
    {"kind": "finished", "draw": 12, "digest": "9dc86153651f47de"}             after its group is stored
    {"kind": "taken", "step": 5, "draws": [11, 12]}                            before the step trains
    {"kind": "trained", "step": 5, "version": 5, "sums": {...}}                after the weights changed
    {"kind": "dropped", "draw": 13, "reason": "late", "step": 5}               before its place is given away
    {"kind": "rewound", "step": 4}                                             steps after 4 did not happen
    {"kind": "left_out", "task": 14, "why": "..."}                             this task cannot be made

A draw is open, then waiting, then taken or dropped:

    opened ──▶ open ──finished──▶ waiting ──taken──▶ taken ──trained──▶ trained
                └─────────── dropped ──┘──▶ dropped

Draws are opened in the order of their index. One that is open or waiting may be opened again with a higher attempt
number: the process that rolled it out ended, or a power cut lost its group. "rewound" takes back every taken, trained
and dropped line of later steps: their draws wait again, or are open again if they never finished.

`read_journal` folds the lines into a `JournalState`; `Journal` appends, and refuses lines that the order above does not
allow. A last line without a line break was never finished: readers ignore it, a writer cuts it off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from turnwise.core.errors import StoreError
from turnwise.core.types import DropReason
from turnwise.store.run_folder import check_format, disk_error, end_of_lines, read_lines, to_line

JOURNAL = "journal.jsonl"

Fate = Literal["open", "waiting", "taken", "dropped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRecord:
    """The journal's record of one draw."""

    draw: int
    task_index: int
    """Index of its task in the training split."""
    version: int
    """Weight version when it was opened."""
    attempt: int = 0
    """First attempt number of its members."""
    pool: str = ""
    """What a curriculum drew it for; empty without one."""
    fate: Fate = "open"
    digest: str | None = None
    """Digest of its stored group (see `groups.GroupStore`); None until it finished."""
    step: int | None = None
    """The step that took or dropped it; None while it is open or waiting."""
    reason: DropReason | None = None
    """Why it was dropped; None unless it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStep:
    """The result of a trained step."""

    step: int
    version: int
    """Weight version after the step."""
    sums: Mapping[str, int] = field(repr=False)
    """One checksum per parameter tensor of the policy, after the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """The state of a run according to its journal."""

    next_draw: int
    """Index of the next draw."""
    next_task: int
    """One more than the highest task index that was drawn or left out."""
    draws: Mapping[int, DrawRecord] = field(repr=False)
    """Every opened draw, by index, in order."""
    taken: Mapping[int, tuple[int, ...]] = field(repr=False)
    """Draws of every taken step, in the order in which they train; trained steps included."""
    trained: Mapping[int, TrainedStep] = field(repr=False)
    """Trained steps by number, in order."""
    left_out: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Why a task could not be made, by its index in the training split."""

    @property
    def open(self) -> list[DrawRecord]:
        """Draws that were opened but did not finish, by index."""
        return self._with_fate("open")

    @property
    def waiting(self) -> list[DrawRecord]:
        """Draws that finished and were neither taken nor dropped, by index."""
        return self._with_fate("waiting")

    @property
    def dropped(self) -> list[DrawRecord]:
        """Draws that will never train, by index."""
        return self._with_fate("dropped")

    def _with_fate(self, fate: Fate) -> list[DrawRecord]:
        return [record for record in self.draws.values() if record.fate == fate]


def read_journal(run: Path) -> JournalState:
    """Return the state after the finished lines of `run/journal.jsonl`; that of a new run if there is no file.

    Raises StoreError naming the line for one that is not a journal line or that cannot follow those before it, or for
    a run of another format.
    """
    check_format(run)
    return fold_journal(list(read_lines(run / JOURNAL)), source=run / JOURNAL)


def fold_journal(rows: Sequence[Mapping[str, Any]], *, source: Path) -> JournalState:
    """Return the state after these lines; `source` is named by the StoreError for a line that cannot follow those
    before it."""
    return _fold(rows, source).snapshot()


def fold_possible(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines that can follow the kept ones before them, from a damaged journal or one that two processes
    wrote."""
    fold, kept = _Fold(Path(JOURNAL)), []
    for row in rows:
        with suppress(StoreError):
            fold.apply(row)
            kept.append(dict(row))
    return kept


class Journal:
    """Appends to the journal of a run. One process writes it.

    Every method appends with one write, which a crash does not split. `taken`, `trained` and `rewound` also wait until
    that line and all before it are on disk. Each raises StoreError, and writes nothing, when a line cannot follow those
    before it or the disk refuses.
    """

    def __init__(self, run: Path, *, check: Callable[[], None] = lambda: None) -> None:
        """Open the journal, a new one if there is none, and cut off an unfinished last line. `check` is called before
        anything is written, and raises StoreError if the run belongs to another process. Raises StoreError."""
        check_format(run)
        check()
        self._check = check
        self._path = run / JOURNAL
        self._fold = self._read()
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            os.ftruncate(self._handle, end_of_lines(self._path, self._handle))
        except OSError as cause:
            raise disk_error("open", self._path, cause) from cause

    @property
    def state(self) -> JournalState:
        """Return the state after every line so far."""
        return self._fold.snapshot()

    def close(self) -> None:
        """Close the file. Nothing can be appended afterwards."""
        os.close(self._handle)

    def opened(self, *draws: DrawRecord) -> None:
        """Record that the rollouts of these draws start; after a crash either all of them or none are recorded."""
        self._append(*(_to_row(draw) for draw in draws))

    def finished(self, draw: int, digest: str) -> None:
        """Record that a draw's group is stored; `digest` is what `GroupStore.save` returned."""
        self._append({"kind": "finished", "draw": draw, "digest": digest})

    def taken(self, step: int, draws: Collection[int]) -> None:
        """Record that a step is about to train on these draws, in this order."""
        self._append({"kind": "taken", "step": step, "draws": list(draws)}, wait=True)

    def trained(self, step: int, *, version: int, sums: Mapping[str, int]) -> None:
        """Record that a step changed the weights: they are version `version` with these checksums."""
        self._append({"kind": "trained", "step": step, "version": version, "sums": dict(sums)}, wait=True)

    def dropped(self, draw: int, reason: DropReason, *, step: int) -> None:
        """Record that a draw will never train. `step` is the next step that trains: a rewind to before it undoes the
        line."""
        self._append({"kind": "dropped", "draw": draw, "reason": reason.value, "step": step})

    def left_out(self, task_index: int, why: str) -> None:
        """Record that a task of the training split is never drawn; no rewind undoes the line."""
        self._append({"kind": "left_out", "task": task_index, "why": why})

    def rewound(self, step: int) -> None:
        """Record that steps after `step` did not happen: their draws wait again, or are open if they never finished."""
        self._append({"kind": "rewound", "step": step}, wait=True)

    def _append(self, *rows: Mapping[str, Any], wait: bool = False) -> None:
        lines = b"".join(to_line(row) for row in rows)
        self._check()
        try:
            for row in rows:
                self._fold.apply(row)
            self._write(lines, wait=wait)
        except BaseException:
            self._fold = self._read()
            raise

    def _write(self, lines: bytes, *, wait: bool) -> None:
        try:
            end = os.fstat(self._handle).st_size
            try:
                if (written := os.write(self._handle, lines)) != len(lines):
                    raise OSError(f"only {written} of {len(lines)} bytes were written")
                if wait:
                    os.fsync(self._handle)
            except BaseException:
                os.ftruncate(self._handle, end)
                raise
        except OSError as cause:
            raise disk_error("append to", self._path, cause) from cause

    def _read(self) -> _Fold:
        return _fold(read_lines(self._path), self._path)


def _to_row(draw: DrawRecord) -> dict[str, Any]:
    row = {"kind": "opened", "draw": draw.draw, "task": draw.task_index, "version": draw.version}
    return {**row, "attempt": draw.attempt, **({"pool": draw.pool} if draw.pool else {})}


class _Fold:
    """The state of a journal while its lines are being read."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._num_lines = 0
        self._next_task = 0
        self._draws: dict[int, DrawRecord] = {}
        self._taken: dict[int, tuple[int, ...]] = {}
        self._trained: dict[int, TrainedStep] = {}
        self._left_out: dict[int, str] = {}

    def snapshot(self) -> JournalState:
        """Return the state as it is now; later lines do not change it."""
        return JournalState(
            next_draw=len(self._draws),
            next_task=self._next_task,
            draws=MappingProxyType(dict(self._draws)),
            taken=MappingProxyType(dict(self._taken)),
            trained=MappingProxyType(dict(self._trained)),
            left_out=MappingProxyType(dict(self._left_out)),
        )

    def _check(self, row: Mapping[str, Any]) -> None:
        try:
            problem = self._find_problem(row)
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            problem = f"it is not a journal line ({type(cause).__name__}: {cause})"
        if problem is not None:
            raise StoreError(
                f"{self._source}, line {self._num_lines + 1}: {problem}; the file was changed, or two processes wrote "
                "to it; `turnwise train --resume` keeps the part that can be verified"
            )

    def apply(self, row: Mapping[str, Any]) -> None:
        """Apply one line. Raises StoreError when it cannot come next."""
        self._check(row)
        self._num_lines += 1
        match row["kind"]:
            case "opened":
                self._draws[row["draw"]] = DrawRecord(
                    draw=row["draw"],
                    task_index=row["task"],
                    version=row["version"],
                    attempt=row["attempt"],
                    pool=row.get("pool", ""),
                )
                self._next_task = max(self._next_task, row["task"] + 1)
            case "finished":
                self._change(row["draw"], fate="waiting", digest=row["digest"])
            case "taken":
                self._taken[row["step"]] = tuple(row["draws"])
                for draw in row["draws"]:
                    self._change(draw, fate="taken", step=row["step"])
            case "trained":
                self._trained[row["step"]] = TrainedStep(step=row["step"], version=row["version"], sums=row["sums"])
            case "dropped":
                self._change(row["draw"], fate="dropped", step=row["step"], reason=DropReason(row["reason"]))
            case "rewound":
                self._rewind(row["step"])
            case "left_out":
                self._left_out[row["task"]] = row["why"]
                self._next_task = max(self._next_task, row["task"] + 1)

    def _change(self, draw: int, **changes: Any) -> None:
        self._draws[draw] = replace(self._draws[draw], **changes)

    def _rewind(self, step: int) -> None:
        for steps in (self._taken, self._trained):
            for later in [number for number in steps if number > step]:
                del steps[later]
        for record in list(self._draws.values()):
            if record.step is not None and record.step > step:
                fate: Fate = "open" if record.digest is None else "waiting"
                self._change(record.draw, fate=fate, step=None, reason=None)

    def _find_problem(self, row: Mapping[str, Any]) -> str | None:
        match row["kind"]:
            case "opened":
                return self._find_opening_problem(row)
            case "finished":
                return self._find_fate_problem(int(row["draw"]), f"finish with {row['digest']}", {"open"})
            case "taken":
                return self._find_taking_problem(int(row["step"]), row["draws"])
            case "trained":
                step, last = int(row["step"]), max(self._trained, default=0)
                before = self._trained[last].version if last else 0
                if step not in self._taken:
                    return f"step {step} is trained and took no draws"
                if step != last + 1:
                    return f"step {step} is trained after step {last}"
                if row["version"] < before or not all(isinstance(value, int) for value in row["sums"].values()):
                    return f"step {step} leaves version {row['version']} after version {before}, or its sums are none"
            case "dropped":
                what = f"be dropped ({DropReason(row['reason']).value}, step {int(row['step'])})"
                return self._find_fate_problem(int(row["draw"]), what, {"open", "waiting"})
            case "rewound":
                if not 0 <= row["step"] <= max(self._taken, default=0):
                    return f"rewound to step {row['step']}, the last step is {max(self._taken, default=0)}"
            case "left_out":
                if int(row["task"]) < 0 or not isinstance(row["why"], str):
                    return f"task {row['task']} is left out for {row['why']!r}; tasks count from 0, a cause is text"
            case kind:
                return f"no journal line is of kind {kind!r}"
        return None

    def _find_opening_problem(self, row: Mapping[str, Any]) -> str | None:
        draw, task, version, attempt = (int(row[name]) for name in ("draw", "task", "version", "attempt"))
        if min(draw, task, version, attempt) < 0:
            return f"draw {draw} is opened with task {task}, version {version}, attempt {attempt}; all count from 0"
        if draw not in self._draws:
            if draw != len(self._draws):
                return f"draw {draw} is opened after {len(self._draws)} draws; the next one is {len(self._draws)}"
            return f"draw {draw} is opened for the first time with attempt {attempt}" if attempt else None
        record = self._draws[draw]
        if record.task_index != task or attempt <= record.attempt:
            return (
                f"draw {draw} is opened with task {task} and attempt {attempt} after task {record.task_index} and "
                f"attempt {record.attempt}; its task stays and its attempt number grows"
            )
        return self._find_fate_problem(draw, "be opened", {"open", "waiting"})

    def _find_taking_problem(self, step: int, draws: Sequence[int]) -> str | None:
        last = max(self._taken, default=0)
        if step != last + 1:
            return f"step {step} takes draws after step {last}"
        if len(set(draws)) != len(draws):
            return f"step {step} takes a draw twice"
        problems = (self._find_fate_problem(int(draw), f"be taken by step {step}", {"waiting"}) for draw in draws)
        return next((problem for problem in problems if problem is not None), None)

    def _find_fate_problem(self, draw: int, what: str, allowed: Collection[Fate]) -> str | None:
        """Return why a draw cannot `what`; None if its fate is one of `allowed`."""
        record = self._draws.get(draw)
        if record is None:
            return f"draw {draw} cannot {what}: it was never opened"
        if record.fate in allowed:
            return None
        where = f" by step {record.step}" if record.step is not None else ""
        why = f" as {record.reason.value}" if record.reason is not None else ""
        return f"draw {draw} cannot {what}: it is {record.fate}{where}{why}"


def _fold(rows: Iterable[Mapping[str, Any]], source: Path) -> _Fold:
    fold = _Fold(source)
    for row in rows:
        fold.apply(row)
    return fold
