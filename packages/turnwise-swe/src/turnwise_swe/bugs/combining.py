"""Combine confirmed bugs from one file, or from several files of one folder, into instances that need several repairs.

As SWE-smith does, only confirmed bugs take part, in a random order and each once. Beyond SWE-smith, every part is
needed: some test of FAIL_TO_PASS fails for each part alone, so that repairing only the others never resolves the
instance."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from turnwise.core.seeds import rng
from turnwise_swe.bugs.edits.source import Replacement, apply, overlap
from turnwise_swe.bugs.ledger import Entry
from turnwise_swe.bugs.making import Maker
from turnwise_swe.bugs.selection import MAX_FAILING, Selection, TestIndex
from turnwise_swe.bugs.whole_files import try_files

PARTS = {"combine_file": 2, "combine_module": 2}
"""Bugs per instance, by kind of combination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A confirmed bug as part of a combination."""

    entry: Entry
    fail_to_pass: frozenset[str]
    pass_to_pass: frozenset[str] = frozenset()

    @property
    def path(self) -> str:
        """The file that is edited."""
        return self.entry.place.split("::")[0]

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """The edit to the pristine file."""
        return tuple(Replacement(start=start, end=end, text=text.encode()) for start, end, text in self.entry.edits)


async def combine_bugs(maker: Maker, num: int) -> int:
    """Keep combinations until the ledger has `num` for this repository or no more can be made. Returns how many it has.
    Raises SandboxError if the sandbox fails."""
    mine = [entry for entry in maker.ledger.entries if entry.repository == maker.repository.key]
    parts = [
        Part(
            entry=entry,
            fail_to_pass=frozenset(maker.instances[entry.instance_id].fail_to_pass),
            pass_to_pass=frozenset(maker.instances[entry.instance_id].pass_to_pass),
        )
        for entry in mine
        if entry.fate == "kept" and entry.kind not in PARTS and entry.instance_id in maker.instances
    ]
    decided = {entry.candidate_id for entry in mine}
    num_kept = sum(entry.fate == "kept" and entry.kind in PARTS for entry in mine)
    for kind, chosen in draw_combinations(parts, maker.seed):
        if num_kept >= num:
            break
        if name_combination(kind, chosen) not in decided:
            entry = await _try(maker, kind, chosen)
            num_kept += entry.fate == "kept"
    return num_kept


def draw_combinations(parts: Sequence[Part], seed: int) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """Pairs of different functions: alternately within one file, and across two files of one folder. Each bug is
    used once."""
    order = sorted(parts, key=lambda part: part.entry.candidate_id)
    rng(seed, "combine").shuffle(order)
    used: set[str] = set()
    while True:
        num_before = len(used)
        for kind in PARTS:
            pair = _find_pair(kind, [part for part in order if part.entry.candidate_id not in used])
            if pair is not None:
                used.update(part.entry.candidate_id for part in pair)
                yield kind, pair
        if len(used) == num_before:
            return


def _find_pair(kind: str, free: Sequence[Part]) -> tuple[Part, Part] | None:
    for place, first in enumerate(free):
        for second in free[place + 1 :]:
            if fit(kind, first, second):
                return first, second
    return None


def fit(kind: str, first: Part, second: Part) -> bool:
    """Say whether two bugs can be combined: two files of one folder, or separate spans in different functions of one
    file."""
    if kind == "combine_module":
        return first.path != second.path and PurePosixPath(first.path).parent == PurePosixPath(second.path).parent
    same_file = first.path == second.path and first.entry.place != second.entry.place
    return same_file and not overlap(first.replacements, second.replacements)


def name_combination(kind: str, parts: Sequence[Part]) -> str:
    """`kind.digest` of the parts' ids."""
    text = "+".join(sorted(part.entry.candidate_id for part in parts))
    return f"{kind}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


async def _try(maker: Maker, kind: str, parts: Sequence[Part]) -> Entry:
    """Confirm one combination in a fresh process."""
    after = {
        path: apply(
            maker.sources[path].content, [item for part in parts if part.path == path for item in part.replacements]
        )
        for path in dict.fromkeys(part.path for part in parts)
    }
    return await try_files(
        maker,
        after,
        selection=select_tests(maker.index, parts),
        candidate_id=name_combination(kind, parts),
        kinds=(kind, *(part.entry.kind for part in parts)),
        places=[part.entry.place for part in parts],
        is_needed=lambda failing: every_part_needed(parts, failing),
    )


def select_tests(index: TestIndex, parts: Sequence[Part]) -> Selection:
    """Tests that the parts break, an equal share of each, and the other tests that pass with one of the parts."""
    share = MAX_FAILING // len(parts)
    breaking = {test for part in parts for test in index.in_order(part.fail_to_pass)[:share]}
    passing = {test for part in parts for test in part.pass_to_pass} - breaking
    return Selection(entering=index.in_order(breaking), neighbours=index.in_order(passing))


def every_part_needed(parts: Sequence[Part], failing: Collection[str]) -> bool:
    """Say whether each part alone breaks one of the tests that the combination breaks."""
    return all(part.fail_to_pass & set(failing) for part in parts)
