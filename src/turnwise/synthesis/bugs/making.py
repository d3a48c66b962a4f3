"""Make the bugs of one repository: draw, screen, confirm, write. What the ledger has decided is not done again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from turnwise.core.errors import DataError
from turnwise.repositories.instance import Instance
from turnwise.repositories.repository import Repository
from turnwise.synthesis.bugs.candidates import Candidate, draw_candidates
from turnwise.synthesis.bugs.confirming import Confirmed, confirm, list_tests
from turnwise.synthesis.bugs.edits.kind import Kind
from turnwise.synthesis.bugs.edits.source import Source, apply
from turnwise.synthesis.bugs.instances import build_instance, count_lines
from turnwise.synthesis.bugs.ledger import Cost, Entry, Fate, Ledger
from turnwise.synthesis.bugs.screening import Screened, Trial, screen
from turnwise.synthesis.bugs.selection import TestIndex
from turnwise_sandbox.types import Sandbox

BATCH = 60
"""Candidates of one program at most: enough that collecting the tests once costs little."""
SPARE = 1.4
"""Candidates that are screened per instance that is still wanted; about one in four does not become one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """One repository, ready for synthesis."""

    sandbox: Sandbox
    repository: Repository
    sources: Mapping[str, Source]
    index: TestIndex
    ledger: Ledger
    instances: Mapping[str, Instance]
    """By id, what is stored so far."""
    keep: Callable[[Instance], None]
    """Stores an instance, before the ledger has it."""
    seed: int

    async def make(self, kinds: Sequence[Kind], num: int, *, num_programs: int) -> int:
        """Keep instances of these kinds until the ledger has `num` of this repository; see `make_from`."""
        drawn = draw_candidates(self.sources, self.index.by_function.keys(), kinds, seed=self.seed)
        return await self.make_from(drawn, {kind.name for kind in kinds}, num, num_programs=num_programs)

    async def make_from(
        self, drawn: Iterable[Candidate], kinds: Collection[str], num: int, *, num_programs: int
    ) -> int:
        """Keep instances until the ledger has `num` of these kinds and this repository, or nothing is left to try.
        Returns how many it has then. Raises SandboxError if the sandbox fails; what was decided before is in the
        ledger."""
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
            self.ledger.write([self._cost(len(chosen), drawing_cpu_s=round(time.process_time() - began, 4))])
            batch = self._select(chosen)
            found = await self._screen(batch, digests, num_programs)
            while found and num_kept < num:  # what is left over stays undecided; the ledger does not name it
                count = min(num_programs, num - num_kept)
                some, found = found[:count], found[count:]
                entries = await asyncio.gather(*(self._confirm(*item) for item in some))
                self.ledger.write(entries)
                num_kept += sum(entry.fate == "kept" for entry in entries)
        return num_kept

    def _select(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Give each candidate its tests; one without goes to the ledger."""
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
        """Screen a batch in several programs; what may be a bug comes back, the rest goes to the ledger."""
        parts = [batch[start::num_programs] for start in range(min(num_programs, len(batch)))]
        answers = await asyncio.gather(*(screen(self.sandbox, self.repository, part) for part in parts))
        self.ledger.write([self._cost(0, screening_cpu_s=round(cpu_s, 4)) for _, cpu_s in answers])
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

    async def _confirm(self, trial: Trial, screened: Screened) -> Entry:
        """Confirm one candidate in a fresh process, and keep it if it is a bug."""
        candidate = trial.candidate
        content = apply(trial.source.content, candidate.replacements)
        confirmed = await confirm(self.sandbox, self.repository, {candidate.path: content}, trial.selection.confirming)
        lists = list_tests(confirmed, trial.selection.entering, trial.selection.neighbours)
        fate = judge_confirmation(confirmed, bool(lists.pass_to_pass), failed_before=bool(screened.failing))
        entry = self._screened_entry(trial, screened, fate)
        forked = {*screened.failing, *screened.passing}
        entry = replace(
            entry,
            confirming_cpu_s=round(confirmed.cpu_s, 4),
            is_same=set(screened.failing) == set(confirmed.failing) & forked if forked else None,
        )
        if fate != "kept":
            return entry
        node = trial.source.scopes[candidate.qualified_name]
        instance = build_instance(
            self.repository,
            instance_id=f"{self.repository.name}-{self.repository.version}.{candidate.kind}.{candidate.digest[:10]}",
            before={candidate.path: trial.source.content},
            after={candidate.path: content},
            kinds=(candidate.kind,),
            places=(entry.place,),
            num_lines=count_lines(node),
            failing=confirmed.failing,
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

    def _cost(self, num_candidates: int, *, drawing_cpu_s: float = 0.0, screening_cpu_s: float = 0.0) -> Cost:
        return Cost(
            repository=self.repository.key,
            num_candidates=num_candidates,
            drawing_cpu_s=drawing_cpu_s,
            screening_cpu_s=screening_cpu_s,
        )


def judge_screening(screened: Screened, digests: set[str]) -> Fate | None:
    """Why a candidate is dropped after its fork; None if it is to be confirmed."""
    if screened.digest and screened.digest in digests and screened.status != "equivalent":
        return "duplicate"
    if screened.status == "unswappable":
        return None  # only a fresh process can show it
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
    """ "path::qualified name", as the ledger and baselines name a function."""
    return f"{candidate.path}::{candidate.qualified_name}"


def read_sources(repository: Repository) -> dict[str, Source]:
    """The source files of the package that can be edited, by path: none that a patch may not change."""
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
                continue  # no offsets, no edits; Python 2 templates and the like
    return sources
