"""From candidate to instance in the real sandbox: what a fork says, what a fresh process says, and what is written."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from small_package import SOURCE, write_repository
from small_package import test_id as tid

from turnwise_sandbox import LocalSandbox
from turnwise_swe.bugs import verifying
from turnwise_swe.bugs.candidates import Candidate, draw_candidates
from turnwise_swe.bugs.checking import check_instance
from turnwise_swe.bugs.combining import combine_bugs
from turnwise_swe.bugs.confirming import Bug, Confirmed, confirm, judge_run
from turnwise_swe.bugs.edits.source import Replacement, Source, apply
from turnwise_swe.bugs.edits.table import choose_kinds
from turnwise_swe.bugs.ledger import load_ledger
from turnwise_swe.bugs.making import Maker, read_sources
from turnwise_swe.bugs.screening import Screened, Trial, screen
from turnwise_swe.bugs.selection import TestIndex
from turnwise_swe.bugs.start import open_maker
from turnwise_swe.repositories.instance import Instance, load_instances
from turnwise_swe.repositories.repository import Repository
from turnwise_swe.repositories.testing import run_repository

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
        ran = [trial for trial, result in zip(trials, screened, strict=True) if result.status == "ran"]
        bugs = [Bug(files={trial.candidate.path: trial.edited}, tests=trial.selection.entering) for trial in ran]
        confirmed, _ = await confirm(sandbox, calc, bugs)
        return screened, [set(item.failing) for item in confirmed]

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
    assert selection.entering == (tid("made"), tid("make"))
    others = {tid(name) for name in ("low", "high", "inside", "total", "total_from", "counter", "countdown")}
    assert len(selection.neighbours) == 4
    assert set(selection.neighbours) < others
    # No other test enters calc/helpers.py, so neighbours come from the rest of the suite.
    assert len(index.select("calc/helpers.py::mean", seed=0).neighbours) == 4
    both = index.select_all(["calc/__init__.py::clamp", "calc/__init__.py::Counter"], seed=0)
    assert both.entering == tuple(tid(name) for name in ("low", "high", "inside", "counter"))
    assert not set(both.neighbours) & set(both.entering)
    slow = replace(calc.baseline, durations={**calc.baseline.durations, tid("made"): 1.5})
    assert tid("made") not in TestIndex(replace(calc, baseline=slow)).tests


def run_in_own_processes(calc: Repository, bugs: list[Bug]) -> list[Confirmed]:
    """As a grading runs tests: a layer over the tree, an interpreter of its own."""

    async def work(sandbox: LocalSandbox) -> list[Confirmed]:
        runs = [await run_repository(sandbox, calc, (bug.files,), ids=bug.tests) for bug in bugs]
        return [judge_run(run, bug.tests) for run, bug in zip(runs, bugs, strict=True)]

    return in_sandbox(work)


def what_it_says(confirmed: Confirmed) -> object:
    """Everything but durations, of which Python's marks below a line of a traceback depend on stored bytecode."""
    failing = {test: (outcome.status, outcome.message) for test, outcome in confirmed.failing.items()}
    return failing, confirmed.passing, confirmed.problem, confirmed.is_late


def all_candidates(repository: Repository) -> list[Bug]:
    """Each bug of every kind that the package has."""
    sources, index = read_sources(repository), TestIndex(repository)
    drawn = draw_candidates(sources, index.by_function.keys(), choose_kinds([]), seed=0)
    return [
        Bug(files={item.path: apply(sources[item.path].content, item.replacements)}, tests=index.tests)
        for item in drawn
    ]


NUM_PARTS = 6


@pytest.mark.slow
@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_a_confirmation_says_what_a_process_of_its_own_says(calc: Repository, part: int) -> None:
    candidates = all_candidates(calc)
    single = [bug for bug in candidates if b"number -= 1" in bug.files.get("calc/__init__.py", b"number -= 1")]
    of_helpers = next(bug for bug in single if "calc/helpers.py" in bug.files)
    joined = [Bug(files={**of_helpers.files, **bug.files}, tests=bug.tests) for bug in single[::2]]
    assert len(single) + len(joined) >= 40  # in all parts
    bugs = [*single, *joined][part::NUM_PARTS]
    confirmed, _ = in_sandbox(lambda sandbox: confirm(sandbox, calc, bugs))
    alone = run_in_own_processes(calc, bugs)
    assert list(map(what_it_says, confirmed)) == list(map(what_it_says, alone))
    assert sum(bool(item.failing) and bool(item.passing) for item in confirmed) >= 4


def bug_of(source: str, *names: str) -> Bug:
    """A bug that replaces the whole module."""
    return Bug(files={"calc/__init__.py": source.encode()}, tests=tuple(map(tid, names)))


def test_a_bug_of_a_module_is_seen_and_gone_with_the_next(calc: Repository) -> None:
    negated = SOURCE.replace("make_adder(2)", "make_adder(-2)")
    assert len(negated) == len(SOURCE) + 1
    bugs = [
        bug_of(SOURCE.replace("make_adder(2)", "make_adder(3)"), "made", "low"),  # bytes as many as before
        bug_of(SOURCE, "made", "low"),
        bug_of(SOURCE, "made"),
        bug_of("import os\nos._exit(0)\n" + SOURCE, "made"),
        bug_of("def broken(:\n", "made"),
        bug_of("open('calc/left.py', 'w').close()\n" + SOURCE, "made"),
        bug_of("import os\nassert not os.path.exists('calc/left.py')\n" + SOURCE, "made"),
        bug_of("open('calc/helpers.py', 'a').close()\nopen('calc/helpers.py', 'a').write('#')\n" + SOURCE, "made"),
        bug_of("assert '#' not in open('calc/helpers.py').read()\n" + SOURCE, "made"),
        bug_of("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n" + SOURCE, "made"),
        bug_of(negated, "made", "low"),
    ]
    results, cpu_s = in_sandbox(lambda sandbox: confirm(sandbox, calc, bugs))
    assert [set(item.failing) for item in results[:3]] == [{tid("made")}, set(), set()]
    assert results[0].failing[tid("made")].message == "assert 4 == 3"
    assert "ended with status 0 before its report" in results[3].problem
    assert set(results[4].failing) == {tid("made")}
    assert not results[4].problem
    # The file that one leaves, and the change that one makes, are not in the tree of the next.
    assert [item.failing for item in results[5:9]] == [{}] * 4
    assert results[9].problem
    assert set(results[10].failing) == {tid("made")}
    assert cpu_s > sum(item.cpu_s for item in results)


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


def test_an_instance_that_is_not_resolved_at_the_end_is_left_out(
    calc: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, ledger = tmp_path / "bugs.jsonl", tmp_path / "ledger.jsonl"
    asked: list[str] = []

    async def check(sandbox: object, repository: Repository, instance: Instance, slots: asyncio.Semaphore) -> str:
        asked.append(instance.instance_id)
        return ("", "with the gold patch the grade is 'unresolved'", "the grade is 'infrastructure'")[len(asked) - 1]

    monkeypatch.setattr(verifying, "check_instance", check)

    async def work(sandbox: LocalSandbox) -> tuple[list[str], dict[str, str], int]:
        maker = open_maker(sandbox, calc, file, ledger, 0)
        assert await maker.make(choose_kinds(["slips"]), 3, num_programs=1) == 3
        problems = await verifying.verify(maker, asked_ids := list(maker.instances), num_programs=1)
        kept = await open_maker(sandbox, calc, file, ledger, 0).make(choose_kinds(["slips"]), 2, num_programs=1)
        return asked_ids, problems, kept

    ids, problems, num_kept = in_sandbox(work)
    assert asked == ids
    assert list(problems) == ids[1:]
    assert [instance.instance_id for instance in load_instances(file)] == [ids[0], ids[2]]
    assert num_kept == 2
    fates = {entry.instance_id: entry.fate for entry in load_ledger(ledger).entries if entry.instance_id}
    assert fates == {ids[0]: "kept", ids[1]: "unstable", ids[2]: "kept"}
