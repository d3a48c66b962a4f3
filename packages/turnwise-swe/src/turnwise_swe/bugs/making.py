"""Make the bugs of one repository: draw, screen, confirm, write. Candidates in the ledger are not tried again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from turnwise.core.errors import DataError
from turnwise.core.seeds import rng
from turnwise_sandbox.types import Sandbox
from turnwise_swe.bugs.candidates import Candidate, draw_candidates
from turnwise_swe.bugs.confirming import Bug, Confirmed, confirm, list_tests
from turnwise_swe.bugs.edits.kind import Kind
from turnwise_swe.bugs.edits.source import Source
from turnwise_swe.bugs.instances import build_instance, count_lines
from turnwise_swe.bugs.ledger import Cost, Entry, Fate, Ledger
from turnwise_swe.bugs.screening import Screened, Trial, screen
from turnwise_swe.bugs.selection import Selection, TestIndex
from turnwise_swe.repositories.instance import Instance
from turnwise_swe.repositories.repository import Repository

Item = TypeVar("Item")

BATCH = 60
"""Maximum number of candidates per program: enough that collecting the tests once costs little."""
MIN_PER_PROGRAM = 6
"""From this many candidates on, they are divided among programs, because each program has a start-up cost."""
SPARE = 1.4
"""Candidates to screen per instance that is still wanted; about one in four does not become an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """One repository, prepared for synthesis."""

    sandbox: Sandbox
    repository: Repository
    sources: Mapping[str, Source]
    index: TestIndex
    ledger: Ledger
    instances: Mapping[str, Instance]
    """The instances stored so far, by id."""
    keep: Callable[[Instance], None]
    """Stores an instance, before the ledger records it."""
    withdraw: Callable[[Collection[str]], None]
    """Removes the instances with these ids from the store."""
    seed: int

    async def make(self, kinds: Sequence[Kind], num: int, *, num_programs: int) -> int:
        """Keep instances of these kinds until the ledger has `num` for this repository; see `make_from`."""
        drawn = draw_candidates(self.sources, self.index.by_function.keys(), kinds, seed=self.seed)
        return await self.make_from(drawn, {kind.name for kind in kinds}, num, num_programs=num_programs)

    async def make_from(
        self, drawn: Iterable[Candidate], kinds: Collection[str], num: int, *, num_programs: int
    ) -> int:
        """Keep instances until the ledger has `num` of these kinds for this repository, or nothing is left to try.
        Returns how many it has. Raises SandboxError if the sandbox fails; the ledger keeps what was decided before."""
        mine = [entry for entry in self.ledger.entries if entry.repository == self.repository.key]
        decided = {entry.candidate_id for entry in mine}
        digests = {entry.digest for entry in mine if entry.digest}
        num_kept = sum(entry.fate == "kept" and entry.kind in kinds for entry in mine)
        waiting = (candidate for candidate in drawn if candidate.candidate_id not in decided)
        while num_kept < num:
            began = time.process_time()
            chosen = list(itertools.islice(waiting, min(BATCH * num_programs, int((num - num_kept) * SPARE) + 4)))
            if not chosen:
                break
            drawing_cpu_s = time.process_time() - began
            self.ledger.write([self.cost_of(num_candidates=len(chosen), drawing_cpu_s=drawing_cpu_s)])
            batch = self._select(chosen)
            found = await self._screen(batch, digests, num_programs)
            while found and num_kept < num:  # the rest stays undecided and out of the ledger
                some, found = found[: num - num_kept], found[num - num_kept :]
                entries = await asyncio.gather(*map(self._confirm, divide(some, num_programs)))
                num_kept += sum(entry.fate == "kept" for entry in itertools.chain(*entries))
        return num_kept

    def _select(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Select the tests of each candidate; candidates without tests go to the ledger."""
        trials: list[Trial] = []
        for candidate in candidates:
            selection = self.index.select(place_of(candidate), seed=self.seed)
            if selection.entering:
                trials.append(Trial(candidate=candidate, source=self.sources[candidate.path], selection=selection))
            else:
                self.ledger.write([self._entry(candidate, "uncovered")])
        return trials

    async def _screen(
        self, batch: Sequence[Trial], digests: set[str], num_programs: int
    ) -> list[tuple[Trial, Screened]]:
        """Screen a batch in several programs. Returns the candidates that may be bugs; the rest goes to the ledger."""
        parts = divide(batch, num_programs)
        answers = await asyncio.gather(*(screen(self.sandbox, self.repository, part) for part in parts))
        self.ledger.write([self.cost_of(screening_cpu_s=cpu_s) for _, cpu_s in answers])
        results = {
            trial.candidate.candidate_id: result
            for part, (screened, _) in zip(parts, answers, strict=True)
            for trial, result in zip(part, screened, strict=True)
        }
        found: list[tuple[Trial, Screened]] = []
        for trial in batch:
            result = results[trial.candidate.candidate_id]
            fate = judge_screening(result, digests)
            if result.digest:
                digests.add(result.digest)
            if fate is None:
                found.append((trial, result))
            else:
                self.ledger.write([self._screened_entry(trial, result, fate)])
        return found

    async def _confirm(self, found: Sequence[tuple[Trial, Screened]]) -> list[Entry]:
        """Confirm candidates in one program, keep those that are bugs, and write their ledger lines."""
        selections = [self._narrow(trial, screened) for trial, screened in found]
        bugs = [
            Bug(files={trial.candidate.path: trial.edited}, tests=selection.tests)
            for (trial, _), selection in zip(found, selections, strict=True)
        ]
        results, cpu_s = await confirm(self.sandbox, self.repository, bugs)
        entries = [
            self._judge(*item, selection, confirmed)
            for item, selection, confirmed in zip(found, selections, results, strict=True)
        ]
        self.ledger.write([*entries, self.cost_of(confirming_cpu_s=cpu_s)])
        return entries

    def _narrow(self, trial: Trial, screened: Screened) -> Selection:
        """The tests that confirm a candidate; all selected tests if no fork reported which of them fail."""
        chance = rng(self.seed, "confirm", trial.candidate.candidate_id)
        return trial.selection.narrow(screened.failing, chance) if screened.failing else trial.selection

    def _judge(self, trial: Trial, screened: Screened, selection: Selection, confirmed: Confirmed) -> Entry:
        """The ledger line of a candidate that was confirmed; if it is a bug, its instance is stored."""
        candidate = trial.candidate
        lists = list_tests(confirmed, selection, rng(self.seed, "list", candidate.candidate_id))
        fate = judge_confirmation(confirmed, bool(lists.pass_to_pass), failed_before=bool(screened.failing))
        entry = self._screened_entry(trial, screened, fate)
        in_both = {*screened.failing, *screened.passing} & set(selection.entering)
        entry = replace(
            entry,
            confirming_cpu_s=confirmed.cpu_s,
            is_same=set(screened.failing) & in_both == set(confirmed.failing) & in_both if in_both else None,
        )
        if fate != "kept":
            return entry
        instance = build_instance(
            self.repository,
            instance_id=f"{self.repository.name}-{self.repository.version}.{candidate.kind}.{candidate.digest[:10]}",
            before={candidate.path: trial.source.content},
            after={candidate.path: trial.edited},
            kinds=(candidate.kind,),
            places=(entry.place,),
            num_lines=count_lines(trial.source.scopes[candidate.qualified_name]),
            failing={test: confirmed.failing[test] for test in lists.fail_to_pass},
            pass_to_pass=lists.pass_to_pass,
            seed=self.seed,
        )
        self.keep(instance)
        edits = tuple((item.start, item.end, item.text.decode()) for item in candidate.replacements)
        return replace(entry, instance_id=instance.instance_id, edits=edits)

    def _entry(self, candidate: Candidate, fate: Fate) -> Entry:
        return Entry(
            repository=self.repository.key,
            candidate_id=candidate.candidate_id,
            kind=candidate.kind,
            place=place_of(candidate),
            fate=fate,
        )

    def _screened_entry(self, trial: Trial, screened: Screened, fate: Fate) -> Entry:
        return replace(
            self._entry(trial.candidate, fate),
            screened_failing=len(screened.failing) if screened.status == "ran" else None,
            screening_cpu_s=screened.cpu_s,
            digest=screened.digest,
        )

    def cost_of(
        self,
        *,
        num_candidates: int = 0,
        drawing_cpu_s: float = 0.0,
        screening_cpu_s: float = 0.0,
        confirming_cpu_s: float = 0.0,
    ) -> Cost:
        """A ledger line about the cost of work on this repository."""
        return Cost(
            repository=self.repository.key,
            num_candidates=num_candidates,
            drawing_cpu_s=round(drawing_cpu_s, 4),
            screening_cpu_s=round(screening_cpu_s, 4),
            confirming_cpu_s=round(confirming_cpu_s, 4),
        )


def divide(items: Sequence[Item], num_programs: int) -> list[Sequence[Item]]:
    """Divide candidates among at most `num_programs` programs, at least `MIN_PER_PROGRAM` each unless there are fewer.
    No program is started without candidates."""
    num = max(1, min(num_programs, len(items) // MIN_PER_PROGRAM))
    return [items[start::num] for start in range(min(num, len(items)))]


def judge_screening(screened: Screened, digests: set[str]) -> Fate | None:
    """Why a candidate is dropped after its fork; None if it should be confirmed."""
    if screened.digest and screened.digest in digests and screened.status != "equivalent":
        return "duplicate"
    if screened.status == "unswappable":
        return None  # only a fresh process can show such a bug
    if screened.status != "ran":
        return screened.status
    return None if screened.failing else "survived"


def judge_confirmation(confirmed: Confirmed, has_pass_to_pass: bool, *, failed_before: bool) -> Fate:
    """The fate of a candidate after its run in a fresh process; `failed_before` says whether a test failed in its
    fork."""
    if confirmed.is_late:
        return "stuck"
    if confirmed.problem:
        return "crashed"
    if not confirmed.failing:
        return "unconfirmed" if failed_before else "survived"
    return "kept" if has_pass_to_pass else "no_pass_to_pass"


def place_of(candidate: Candidate) -> str:
    """The function that a candidate edits, as "path::qualified name", like in the ledger and in baselines."""
    return f"{candidate.path}::{candidate.qualified_name}"


def read_sources(repository: Repository) -> dict[str, Source]:
    """The source files of the package that can be edited, by path, without those that a patch may not change."""
    sources: dict[str, Source] = {}
    for folder in repository.source_folders:
        place = repository.root / folder
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            path = file.relative_to(repository.root).as_posix()
            if repository.is_protected(path):
                continue
            try:
                sources[path] = Source.parse(path, file.read_bytes())
            except DataError:
                continue  # cannot be parsed, so it cannot be edited: Python 2 templates and the like
    return sources
