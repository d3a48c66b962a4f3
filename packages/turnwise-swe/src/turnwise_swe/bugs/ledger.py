"""The ledger of bug synthesis: one JSON line per candidate with its fate, and one per program with its cost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from turnwise.core.errors import DataError, StoreError
from turnwise_swe.repositories.instance import read_rows

Fate = Literal[
    "kept",
    "survived",
    "uncovered",
    "no_pass_to_pass",
    "stuck",
    "crashed",
    "equivalent",
    "duplicate",
    "lost",
    "unconfirmed",
    "not_needed",
    "unwritten",
    "unstable",
]
"""The fate of a candidate:

- kept: confirmed, and stored as an instance
- survived: no test fails
- uncovered: no passing test enters it
- no_pass_to_pass: every test fails
- stuck: its tests do not end
- crashed: the process of its tests ended before them
- equivalent: its bytecode is that of the original
- duplicate: its bytecode is that of another candidate
- lost: a test was not collected
- unconfirmed: a test failed in the fork, none in a fresh process
- not_needed: a combination that is repaired even if one part is left unrepaired
- unwritten: a model's reply contains no change to the function that compiles
- unstable: was kept, but when graded again at the end its gold patch did not resolve it, or an empty one did
"""
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One candidate's fate."""

    repository: str
    """`name==version`."""
    candidate_id: str
    kind: str
    place: str
    """"path::qualified name" of the edited function."""
    fate: Fate
    screened_failing: int | None = None
    """Failing tests in the fork; None if it was not screened by fork."""
    is_same: bool | None = None
    """Whether fork and fresh process agree on every test that both ran; None if one of them did not run."""
    screening_cpu_s: float = 0.0
    """Processor seconds of the screening fork alone."""
    confirming_cpu_s: float = 0.0
    """Processor seconds of the confirming fork alone."""
    digest: str = ""
    """Digest of the bytecode."""
    edits: tuple[tuple[int, int, str], ...] = ()
    """For a kept candidate: start, end and text of each replacement in the pristine file."""
    instance_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of a batch: draws in this process, and the programs including everything besides their forks."""

    repository: str
    num_candidates: int
    drawing_cpu_s: float
    screening_cpu_s: float
    confirming_cpu_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Ledger:
    """A file that grows by whole lines, and its contents."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    _places: dict[tuple[str, str], int] = field(default_factory=dict, repr=False, compare=False)

    def write(self, rows: Iterable[Entry | Cost]) -> None:
        """Append rows. Raises StoreError if the disk refuses."""
        kept = list(rows)
        append_lines(self.path, [json.dumps(_to_json(row), separators=(",", ":")) for row in kept])
        for row in kept:
            self.add(row)

    def add(self, row: Entry | Cost) -> None:
        """Add a row in memory. A second entry for a candidate replaces the first."""
        if isinstance(row, Cost):
            self.costs.append(row)
            return
        place = self._places.setdefault((row.repository, row.candidate_id), len(self.entries))
        self.entries[place : place + 1] = [row]


def _to_json(row: Entry | Cost) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if value not in (None, "", ())}


def load_ledger(path: Path) -> Ledger:
    """Load the ledger from a file; empty if there is no file. Raises DataError for a line that does not belong to a
    ledger."""
    drop_cut_line(path)
    ledger = Ledger(path=path)
    if not path.exists():
        return ledger
    for place, row in read_rows(path):
        try:
            if "fate" in row:
                row["edits"] = tuple((int(start), int(end), str(text)) for start, end, text in row.get("edits", ()))
                ledger.add(Entry(**row))
                if row["fate"] not in FATES:
                    raise ValueError(f"fate {row['fate']!r}")
            else:
                ledger.add(Cost(**row))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{place} does not belong to a ledger: {error}; name the file written by `bugs make`"
            ) from error
    return ledger


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append whole lines. Raises StoreError if the disk refuses."""
    try:
        with path.open("ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
    except OSError as cause:
        raise StoreError(f"cannot write {path}: {cause.strerror}; name a file in an existing folder") from cause


def drop_cut_line(path: Path) -> None:
    """Remove a last line that a crash cut off. Raises StoreError if the disk refuses."""
    try:
        if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    except OSError as cause:
        raise StoreError(f"cannot repair {path}: {cause.strerror}") from cause
