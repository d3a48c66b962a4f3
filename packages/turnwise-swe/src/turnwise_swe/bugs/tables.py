"""Summarize a ledger by repository and by kind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise_swe.bugs.ledger import FATES, Cost, Entry, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of the candidates of one repository or kind."""

    name: str
    fates: Counter[str]
    num_forked: int
    """Candidates whose tests ran in a fork."""
    num_compared: int
    """Candidates that ran in a fork and in a fresh process."""
    num_same: int
    """Candidates of those for which both had the same failing tests."""
    screening_cpu_s: float
    """Processor seconds of forks; for a repository, those of the programs, with collection."""
    num_confirmed: int
    confirming_cpu_s: float
    """Processor seconds of confirmations, counted in the same way."""

    @property
    def num_candidates(self) -> int:
        """Number of candidates with that fate."""
        return sum(self.fates.values())

    def to_row(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {
            "name": self.name,
            "candidates": self.num_candidates,
            "fates": {fate: self.fates[fate] for fate in FATES if self.fates[fate]},
            "forked": self.num_forked,
            "compared": self.num_compared,
            "same": self.num_same,
            "screening_cpu_s": round(self.screening_cpu_s, 2),
            "confirmed": self.num_confirmed,
            "confirming_cpu_s": round(self.confirming_cpu_s, 2),
        }


def summarize(ledger: Ledger) -> list[Summary]:
    """One summary per repository, then one per kind, then "all"."""
    repositories = dict.fromkeys(entry.repository for entry in ledger.entries)
    kinds = sorted({entry.kind for entry in ledger.entries})
    return [
        *(
            _summary(
                key,
                (entry for entry in ledger.entries if entry.repository == key),
                [cost for cost in ledger.costs if cost.repository == key],
            )
            for key in repositories
        ),
        *(_summary(kind, (entry for entry in ledger.entries if entry.kind == kind), []) for kind in kinds),
        _summary("all", ledger.entries, ledger.costs),
    ]


def _summary(name: str, entries: Iterable[Entry], costs: Sequence[Cost]) -> Summary:
    rows = list(entries)
    compared = [row for row in rows if row.is_same is not None]
    confirmed = [row for row in rows if row.confirming_cpu_s]
    screening = sum(cost.screening_cpu_s for cost in costs) if costs else sum(row.screening_cpu_s for row in rows)
    return Summary(
        name=name,
        fates=Counter(row.fate for row in rows),
        num_forked=sum(row.screened_failing is not None for row in rows),
        num_compared=len(compared),
        num_same=sum(bool(row.is_same) for row in compared),
        screening_cpu_s=screening,
        num_confirmed=len(confirmed),
        confirming_cpu_s=sum(cost.confirming_cpu_s for cost in costs) or sum(row.confirming_cpu_s for row in confirmed),
    )


def table_lines(ledger: Ledger, file: Path) -> Iterator[str]:
    """The table as Markdown, and the size of the instance file."""
    yield "| | candidates | kept | dropped | fork = fresh process | CPU s a candidate | CPU s a confirmation |"
    yield "|---|---|---|---|---|---|---|"
    for item in summarize(ledger):
        dropped = ", ".join(f"{item.fates[fate]} {fate}" for fate in FATES[1:] if item.fates[fate])
        share = f" ({item.fates['kept'] / item.num_candidates:.0%})" if item.num_candidates else ""
        same = f"{item.num_same} of {item.num_compared}" if item.num_compared else ""
        yield (
            f"| {item.name} | {item.num_candidates} | {item.fates['kept']}{share} | {dropped} | {same} | "
            f"{_mean(item.screening_cpu_s, item.num_candidates)} | {_mean(item.confirming_cpu_s, item.num_confirmed)} |"
        )
    drawing = sum(cost.drawing_cpu_s for cost in ledger.costs)
    drawn = sum(cost.num_candidates for cost in ledger.costs)
    yield ""
    yield f"{drawn} candidates drawn in {drawing:.1f} CPU s"
    spent_s = drawing + sum(cost.screening_cpu_s + cost.confirming_cpu_s for cost in ledger.costs)
    kept = sum(entry.fate == "kept" for entry in ledger.entries)
    if kept:
        yield f"{spent_s / kept:.3f} CPU s an instance with all programs: {3600 * kept / spent_s:,.0f} per core-hour"
    if file.exists() and (content := file.read_bytes()):
        num = content.count(b"\n")
        yield f"{num} instances, {len(content) / num:,.0f} bytes each: {_largest_fields(content)}"


def _largest_fields(content: bytes) -> str:
    """The fields of the instances that take the most bytes, with the mean size of each."""
    rows = [json.loads(line) for line in content.splitlines()]
    sizes: Counter[str] = Counter()
    for row in rows:
        for name, value in row.items():
            sizes[name] += len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
    return ", ".join(f"{size / len(rows):,.0f} {name}" for name, size in sizes.most_common(4))


def _mean(total: float, count: int) -> str:
    return f"{total / count:.3f}" if count and total else ""
