"""From candidate to instance in the real sandbox: what a fork says, what a fresh process says, and what is written."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from small_package import test_id as tid
from small_package import write_repository

from turnwise.repositories.instance import load_instances
from turnwise.repositories.repository import Repository
from turnwise.synthesis.bugs.candidates import Candidate
from turnwise.synthesis.bugs.checking import check_instance
from turnwise.synthesis.bugs.combining import combine_bugs
from turnwise.synthesis.bugs.confirming import confirm
from turnwise.synthesis.bugs.edits.source import Replacement, Source, apply
from turnwise.synthesis.bugs.edits.table import choose_kinds
from turnwise.synthesis.bugs.ledger import load_ledger
from turnwise.synthesis.bugs.making import Maker, read_sources
from turnwise.synthesis.bugs.screening import Screened, Trial, screen
from turnwise.synthesis.bugs.selection import TestIndex
from turnwise.synthesis.bugs.start import open_maker
from turnwise_sandbox import LocalSandbox

T = TypeVar("T")


@pytest.fixture(scope="module")
def calc(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    root = tmp_path_factory.mktemp("calc")
    root.chmod(0o755)
    return write_repository(root)


def in_sandbox(work: Callable[[LocalSandbox], Awaitable[T]]) -> T:
    async def run() -> T:
        async with LocalSandbox(num_slots=1) as sandbox:
            return await work(sandbox)

    return asyncio.run(run())


def plant(repository: Repository, name: str, old: str, new: str, *, screened: bool = True) -> Trial:
    """A candidate that replaces a text which occurs once in the package."""
    source = read_sources(repository)["calc/__init__.py"]
    start = source.content.index(old.encode())
    assert source.content.count(old.encode()) == 1
    candidate = Candidate(
        path=source.path,
        qualified_name=name,
        kind="planted",
        replacements=(Replacement(start=start, end=start + len(old), text=new.encode()),),
        digest=f"{start}-{new}",
        screened=screened,
    )
    return Trial(
        candidate=candidate,
        source=source,
        selection=TestIndex(repository).select(f"{source.path}::{name}", seed=0),
    )


PLANTED = [
    # name, old, new, status, failing tests
    ("clamp", "value < low", "value <= low", "ran", []),  # the same for every value
    ("clamp", "value < low", "value >= low", "ran", ["low", "high", "inside"]),
    ("clamp", "value > high", "value >= 4", "ran", []),
    ("total", "result += value", "result -= value", "ran", ["total", "total_from"]),
    ("total", "    return result", "    pass; return result", "equivalent", []),
    ("total", "start=0", "start=1", "unswappable", []),
    ("make_adder.<locals>.add", "value + number", "value - number", "ran", ["made", "make"]),
    ("make_adder", "return add", "return number", "ran", ["make"]),
    ("Counter.up", "return self.count", "return None", "ran", ["counter"]),
    ("Counter", "step = 1", "step = 2", "unswappable", []),
    ("countdown", "number -= 1", "pass", "stuck", []),
    ("total", "result = start", "__import__('os')._exit(0)", "crashed", []),
    ("clamp", "return high", "import sys; sys.stdout.write('x' * 100000); return high", "ran", []),
]


def test_a_fork_tells_what_a_fresh_process_tells(calc: Repository) -> None:
    trials = [plant(calc, name, old, new) for name, old, new, *_ in PLANTED]

    async def both(sandbox: LocalSandbox) -> tuple[list[Screened], list[set[str]]]:
        screened, cpu_s = await screen(sandbox, calc, trials)
        assert cpu_s > 0.1
        failing = []
        for trial, result in zip(trials, screened, strict=True):
            if result.status != "ran":
                continue
            edited = apply(trial.source.content, trial.candidate.replacements)
            confirmed = await confirm(sandbox, calc, {trial.candidate.path: edited}, trial.selection.entering)
            failing.append(set(confirmed.failing))
        return screened, failing

    screened, fresh = in_sandbox(both)
    for (name, _, new, status, failing), result in zip(PLANTED, screened, strict=True):
        assert result.status == status, (name, new)
        assert set(result.failing) == {tid(test) for test in failing}, (name, new)
    assert fresh == [set(result.failing) for result in screened if result.status == "ran"]


def test_the_baseline_index_selects_those_that_enter(calc: Repository) -> None:
    index = TestIndex(calc)
    selection = index.select("calc/__init__.py::Counter", seed=0)
    assert selection.entering == (tid("counter"),)  # through its methods
    selection = index.select("calc/__init__.py::make_adder.<locals>.add", seed=0)
    assert selection.entering == selection.screening == (tid("made"), tid("make"))
    assert set(selection.neighbours) == {
        tid(name) for name in ("low", "high", "inside", "total", "total_from", "counter", "countdown")
    }
    # No other test enters calc/helpers.py, so neighbours come from the rest of the suite.
    assert len(index.select("calc/helpers.py::mean", seed=0).neighbours) == 10
    slow = replace(calc.baseline, durations={**calc.baseline.durations, tid("made"): 1.5})
    assert tid("made") not in TestIndex(replace(calc, baseline=slow)).tests


@pytest.mark.slow
def test_bugs_are_made_resumed_combined_and_checked(calc: Repository, tmp_path: Path) -> None:
    file, ledger = tmp_path / "bugs.jsonl", tmp_path / "bugs.ledger.jsonl"
    kinds = choose_kinds(["slips"])

    async def work(sandbox: LocalSandbox) -> list[str]:
        def open_it() -> Maker:
            return open_maker(sandbox, calc, file, ledger, 0)

        assert await open_it().make(kinds, 3, num_programs=1) == 3
        before = file.read_bytes()
        assert await open_it().make(kinds, 3, num_programs=1) == 3
        assert file.read_bytes() == before
        with ledger.open("ab") as cut:
            cut.write(b'{"repository": "calc==1.0", "fa')  # a crash in the middle of a line
        assert await open_it().make(kinds, 8, num_programs=2) == 8
        assert file.read_bytes().startswith(before)
        assert await combine_bugs(open_it(), 1) == 1
        slots = asyncio.Semaphore(2)
        return [await check_instance(sandbox, calc, instance, slots) for instance in load_instances(file)]

    assert in_sandbox(work) == [""] * 9
    entries = load_ledger(ledger).entries
    assert len({entry.candidate_id for entry in entries}) == len(entries)
    kept = [entry for entry in entries if entry.fate == "kept"]
    instances = {instance.instance_id: instance for instance in load_instances(file)}
    assert [entry.instance_id for entry in kept] == list(instances)
    assert all(entry.is_same for entry in kept if entry.is_same is not None)
    for entry in kept[:8]:
        instance = instances[entry.instance_id]
        source: Source = read_sources(calc)[entry.place.split("::")[0]]
        spans = [Replacement(start=start, end=end, text=text.encode()) for start, end, text in entry.edits]
        assert instance.bug_layer(calc) == {source.path: apply(source.content, spans)}
        assert instance.kind == (entry.kind,)
    combined = instances[kept[8].instance_id]
    assert combined.kind[0] == "combine_file"
    assert len(combined.kind) == 3


def test_a_check_finds_what_is_wrong_with_an_instance(calc: Repository, tmp_path: Path) -> None:
    file = tmp_path / "bugs.jsonl"

    async def work(sandbox: LocalSandbox) -> list[str]:
        maker = open_maker(sandbox, calc, file, tmp_path / "ledger.jsonl", 0)
        await maker.make(choose_kinds(["return_none"]), 1, num_programs=1)
        [instance] = maker.instances.values()
        swapped = replace(instance, fail_to_pass=(tid("nothing"),), pass_to_pass=())
        mixed = replace(instance, fail_to_pass=(*instance.fail_to_pass, tid("nothing")), pass_to_pass=())
        slots = asyncio.Semaphore(1)
        return [await check_instance(sandbox, calc, item, slots) for item in (instance, swapped, mixed)]

    good, swapped, mixed = in_sandbox(work)
    assert good == ""
    assert swapped == "without a change the grade is 'resolved', not 'unresolved'"
    assert mixed == f"without a change {tid('nothing')} is in the wrong list"
    [row] = [json.loads(line) for line in file.read_text().splitlines()]
    assert row["patch"].startswith("diff --git a/calc/")
