"""Issues that leak nothing, fates, the ledger, combinations and tables: no sandbox."""

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.core.errors import DataError, StoreError
from turnwise_swe.bugs.combining import Part, draw_combinations, every_part_needed, fit
from turnwise_swe.bugs.confirming import Confirmed, list_tests
from turnwise_swe.bugs.difficulty import measure_difficulty
from turnwise_swe.bugs.guest.screen import Screener
from turnwise_swe.bugs.issues import changed_lines, reveals, write_issue
from turnwise_swe.bugs.ledger import Cost, Entry, Ledger, load_ledger
from turnwise_swe.bugs.making import judge_confirmation, judge_screening
from turnwise_swe.bugs.screening import Screened
from turnwise_swe.bugs.selection import Selection
from turnwise_swe.bugs.start import locked
from turnwise_swe.bugs.tables import summarize, table_lines
from turnwise_swe.repositories.outcome import Outcome

TEST = """import calc


def test_high():
    value = 4
    assert calc.clamp(
        value, 2, 3) == 3
    assert 0
"""
DETAILS = """tests/test_calc.py:6: in test_high
    assert calc.clamp(
calc/__init__.py:8: in clamp
    if value >= high and value:
E   AssertionError: assert 4 == 3
E    +  where 4 = clamp(4, 2, 3)"""
PATCH = """diff --git a/calc/__init__.py b/calc/__init__.py
--- a/calc/__init__.py
+++ b/calc/__init__.py
@@ -7,3 +7,3 @@
     context
-    if value >  high and value:
+    if value >= high and value:
     x
"""


def issue(details: str = DETAILS, *, patch: str = PATCH, text: str = TEST, seed: int = 0) -> str:
    return write_issue(
        package="calc",
        version="1.0",
        failing={"tests/test_calc.py::test_high": Outcome(status="failed", details=details)},
        test_texts={"tests/test_calc.py": text},
        places=["calc/__init__.py::clamp"],
        explanations=["A boundary of a range is off by one"],
        patch=patch,
        seed=seed,
    )


def test_an_issue_shows_the_test_up_to_its_failing_line_and_the_error() -> None:
    [shown] = {text for seed in range(20) if "```python" in (text := issue(seed=seed))} & {
        f"{start}\n\nTo reproduce:\n\n```python\nvalue = 4\nassert calc.clamp(\n    value, 2, 3) == 3\n```\n\n"
        "This gives:\n\n```\nAssertionError: assert 4 == 3\n+  where 4 = clamp(4, 2, 3)\n```\n"
        for start in ["I found a problem in calc."]
    }
    assert "clamp" in shown


def test_an_error_is_shown_without_addresses_and_pytest_s_advice() -> None:
    details = (
        "tests/test_calc.py:6: in test_high\nE   assert <f at 0x7f00deadbeef> is 1\nE   \nE   Use -v to get more diff"
    )
    texts = [text for seed in range(20) if "```python" in (text := issue(details, seed=seed))]
    assert texts
    assert all(text.endswith("```\nassert <f at 0x...> is 1\n```\n") for text in texts)


def test_an_error_with_a_path_of_the_sandbox_is_not_shown() -> None:
    for folder in ("work", "tmp"):
        for path in (f"/box/own/{folder}/calc.py", f"/{folder}/calc.py"):
            details = f"tests/test_calc.py:6: in test_high\nE   AssertionError: no {path}"
            assert all("```" not in issue(details, seed=seed) for seed in range(10))
        details = f"tests/test_calc.py:6: in test_high\nE   AssertionError: no https://host/{folder}/c or a/{folder}/b"
        assert any(f"a/{folder}/b" in issue(details, seed=seed) for seed in range(10))


def test_a_docstring_is_no_reproduction() -> None:
    text = TEST.replace("    value = 4\n", '    """Says what is tested."""\n    value = 4\n')
    texts = [issue(DETAILS.replace(":6:", ":7:"), text=text, seed=seed) for seed in range(20)]
    assert any("```python\nvalue = 4\n" in found for found in texts)
    assert not any("what is tested" in found for found in texts)
    of_docstring = [issue(DETAILS.replace(":6:", ":5:"), text=text, seed=seed) for seed in range(20)]
    assert not any("```" in found for found in of_docstring)


def test_a_test_has_the_worst_status_of_its_subtests() -> None:
    screener = Screener({}, -1)
    for outcome in ("passed", "failed", "passed", "skipped"):
        screener.pytest_runtest_logreport(SimpleNamespace(when="call", outcome=outcome, nodeid="a"))
    assert screener.letters == {"a": "f"}


def test_a_long_test_loses_whole_statements_from_its_start() -> None:
    # Lines 2 to 11 are one statement, 12 to 31 single ones: 25 lines end at 31 and would begin inside the list.
    text = (
        "def test_high():\n    x = [\n"
        + "        1,\n" * 8
        + "    ]\n"
        + "".join(f"    a{n} = {n}\n" for n in range(20))
    )
    details = "tests/test_calc.py:31: in test_high\nE   boom"
    texts = [found for seed in range(20) if "```python" in (found := issue(details, text=text, seed=seed))]
    assert texts
    assert all("```python\na0 = 0\na1 = 1\n" in found and "a19 = 19\n```" in found for found in texts)


def test_a_failing_helper_of_the_test_s_file_is_shown_instead_of_its_call() -> None:
    text = "def check(value):\n    limit = 3\n    assert value < limit\n\n\ndef test_high():\n    check(4)\n"
    details = "tests/test_calc.py:7: in test_high\n    check(4)\ntests/test_calc.py:3: in check\nE   assert 4 < 3"
    texts = [found for seed in range(20) if "```python" in (found := issue(details, text=text, seed=seed))]
    assert texts
    assert all("```python\nlimit = 3\nassert value < limit\n```" in found for found in texts)


def test_the_other_templates_name_tests_files_or_the_kind_of_mistake() -> None:
    texts = [issue(seed=seed) for seed in range(60)]
    assert any("1 test fails:\n\n- `tests/test_calc.py::test_high`" in text for text in texts)
    assert any("The cause seems to be in `calc/__init__.py`. 1 test fails." in text for text in texts)
    assert any(
        text.endswith("A boundary of a range is off by one. For example, `tests/test_calc.py::test_high` fails.\n")
        for text in texts
    )
    assert issue(seed=1) == issue(seed=1)


@pytest.mark.parametrize("line", ["if value > high and value:", "if value >= high and value:"])
def test_a_planted_leak_never_gets_into_an_issue(line: str) -> None:
    leaking = TEST.replace("    value = 4\n", f"    value = 4  #   {line.replace(' ', '  ')}\n")
    details = DETAILS + f"\nE   {line}"
    for seed in range(40):
        for text in (issue(text=leaking, seed=seed), issue(details, seed=seed)):
            assert line not in " ".join(text.split())
            assert not reveals(text, changed_lines(PATCH))


def test_an_issue_about_which_everything_leaks_says_nothing() -> None:
    patch = "-    tests\n+    boundary of a range\n-    `tests/test_calc.py::test_high`\n-1 test fails\n-value = 4\n"
    assert any(issue(patch=patch, seed=seed).endswith("Find out why and repair it.\n") for seed in range(10))


def test_changed_lines_are_those_of_both_sides_without_headers_and_short_ones() -> None:
    assert changed_lines(PATCH + "-else:\n+ pass\n") == {"if value > high and value:", "if value >= high and value:"}
    assert reveals("x = [if   value >=\n high and value:]", changed_lines(PATCH))


@pytest.mark.parametrize(
    ("screened", "fate"),
    [
        (Screened(status="ran", failing=("a",), digest="1"), None),
        (Screened(status="ran", passing=("a",), digest="1"), "survived"),
        (Screened(status="ran", failing=("a",), digest="2"), "duplicate"),
        (Screened(status="unswappable", digest="1"), None),
        (Screened(status="unswappable", digest="2"), "duplicate"),
        (Screened(status="equivalent", digest="2"), "equivalent"),
        (Screened(status="stuck", digest="1"), "stuck"),
        (Screened(status="crashed"), "crashed"),
        (Screened(status="lost", digest="1"), "lost"),
    ],
)
def test_the_fate_after_a_fork(screened: Screened, fate: str | None) -> None:
    assert judge_screening(screened, {"2"}) == fate


FAILED = {"a": Outcome(status="failed")}


@pytest.mark.parametrize(
    ("confirmed", "failed_before", "fate"),
    [
        (Confirmed(failing=FAILED, passing=("b",)), True, "kept"),
        (Confirmed(failing=FAILED, passing=()), True, "no_pass_to_pass"),
        (Confirmed(failing={}, passing=("b",)), True, "unconfirmed"),
        (Confirmed(failing={}, passing=("b",)), False, "survived"),
        (Confirmed(failing=FAILED, passing=("b",), problem="ended"), True, "crashed"),
        (Confirmed(failing=FAILED, passing=("b",), problem="deadline", is_late=True), True, "stuck"),
    ],
)
def test_the_fate_after_a_fresh_process(confirmed: Confirmed, failed_before: bool, fate: str) -> None:
    assert judge_confirmation(confirmed, bool(confirmed.passing), failed_before=failed_before) == fate


def test_lists_of_tests_keep_some_of_many() -> None:
    tests, far = tuple(f"n{number:02}" for number in range(60)), tuple(f"f{number}" for number in range(5))
    failing = dict.fromkeys(tests[:30], FAILED["a"])
    confirmed = Confirmed(failing={**failing, "f0": FAILED["a"]}, passing=(*tests[30:], *far[1:]))
    selection = Selection(entering=tests, neighbours=far)
    lists = list_tests(confirmed, selection, random.Random(0))
    assert len(set(lists.fail_to_pass)) == 10
    assert set(lists.fail_to_pass) <= {*failing, "f0"}
    near = [test for test in lists.pass_to_pass if test.startswith("n")]
    assert len(near) == 6
    assert near == sorted(near)
    assert set(near) <= set(tests[30:])
    assert lists.pass_to_pass[6:] == far[1:]
    few = list_tests(
        Confirmed(failing=FAILED, passing=("b",)), Selection(entering=("a", "b"), neighbours=()), random.Random(0)
    )
    assert (few.fail_to_pass, few.pass_to_pass) == (("a",), ("b",))


def test_a_confirmation_runs_some_of_the_tests_that_failed_and_passed_in_the_fork() -> None:
    tests = tuple(f"n{number:02}" for number in range(40))
    narrow = Selection(entering=tests, neighbours=("f",)).narrow(tests[:30], random.Random(0))
    assert len(narrow.entering) == 16
    assert narrow.entering == tuple(sorted(narrow.entering))
    assert set(narrow.entering[:10]) < set(tests[:30])
    assert set(narrow.entering[10:]) < set(tests[30:])
    assert narrow.tests == (*narrow.entering, "f")


def test_difficulty_counts_what_every_failing_test_enters() -> None:
    entered = {"a": frozenset("xyz"), "b": frozenset("xyuv"), "c": frozenset()}
    assert measure_difficulty(["a", "b"], entered, 7) == "easy: 2 suspects, 2 failing, 7 lines"
    assert measure_difficulty(["a", "c"], entered, 7) == "easy: 3 suspects, 2 failing, 7 lines"  # of any test
    many = {"a": frozenset(map(str, range(13)))}
    assert measure_difficulty(["a"], many, 1) == "hard: 13 suspects, 1 failing, 1 lines"


def entry(number: int, *, path: str = "m/a.py", fate: str = "kept", **fields: object) -> Entry:
    values = {"repository": "calc==1.0", "kind": "bool", "edits": ((number * 10, number * 10 + 2, "x"),), **fields}
    place = f"{path}::f{number}"
    return Entry(candidate_id=f"bool.{number}", place=place, fate=fate, **values)  # type: ignore[arg-type]


def test_a_ledger_gives_back_what_was_written_and_drops_a_cut_line(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    rows = [entry(1, is_same=False, screened_failing=0), entry(2, fate="survived")]
    cost = Cost(repository="calc==1.0", num_candidates=2, drawing_cpu_s=0.5, screening_cpu_s=0.0)
    Ledger(path=file).write([*rows, cost])
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"repository":')
    ledger = load_ledger(file)
    assert (ledger.entries, ledger.costs) == (rows, [cost])
    assert file.read_bytes() == whole
    file.write_bytes(whole.replace(b'"survived"', b'"eaten"'))
    with pytest.raises(DataError, match=r"line 2 does not belong to a ledger: fate 'eaten'"):
        load_ledger(file)
    assert load_ledger(tmp_path / "other").entries == []


def test_a_later_line_of_a_candidate_counts(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "ledger.jsonl")
    ledger.write([entry(1), entry(2)])
    ledger.write([replace(entry(1), fate="unstable")])
    assert [one.fate for one in ledger.entries] == ["unstable", "kept"]
    assert load_ledger(ledger.path) == ledger


def test_one_command_at_a_time_works_on_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bugs.ledger.jsonl"
    with locked(file), pytest.raises(StoreError, match="another command is adding bugs"), locked(file):
        pass
    with locked(file):
        pass
    with pytest.raises(StoreError, match="cannot write"), locked(tmp_path / "none" / "bugs.ledger.jsonl"):
        pass


def part(number: int, *tests: str, path: str = "m/a.py", **fields: Any) -> Part:
    return Part(entry=entry(number, path=path, **fields), fail_to_pass=frozenset(tests))


def test_what_can_be_combined() -> None:
    first = part(1, "a")
    assert fit("combine_file", first, part(2, "b"))
    assert not fit("combine_file", first, part(1, "b"))  # the same function
    assert not fit("combine_file", first, part(3, "b", edits=((11, 13, "y"),)))  # overlapping spans
    assert not fit("combine_file", first, part(2, "b", path="m/b.py"))
    assert fit("combine_module", first, part(2, "b", path="m/b.py"))
    assert not fit("combine_module", first, part(2, "b", path="n/b.py"))
    assert not fit("combine_module", first, part(2, "b"))


def test_every_bug_takes_part_in_one_combination() -> None:
    parts = [part(1), part(2), part(3, path="m/b.py"), part(4), part(5, path="n/c.py")]
    drawn = list(draw_combinations(parts, seed=0))
    used = [item.entry.candidate_id for _, pair in drawn for item in pair]
    assert len(used) == len(set(used)) == 4
    assert [kind for kind, _ in drawn] == ["combine_file", "combine_module"]
    assert drawn == list(draw_combinations(parts[::-1], seed=0))


def test_a_part_whose_tests_pass_in_the_combination_is_not_needed() -> None:
    parts = [part(1, "a", "b"), part(2, "c")]
    assert every_part_needed(parts, {"b": 1, "c": 1})
    assert not every_part_needed(parts, {"a": 1, "b": 1})


def test_the_table_adds_up(tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "ledger.jsonl")
    ledger.entries = [
        entry(1, is_same=True, screened_failing=2, screening_cpu_s=0.1, confirming_cpu_s=0.5),
        entry(2, fate="unconfirmed", is_same=False, screened_failing=1, screening_cpu_s=0.3, confirming_cpu_s=0.7),
        entry(3, fate="survived", screened_failing=0, screening_cpu_s=0.2),
        entry(4, repository="other==2", kind="boundary", confirming_cpu_s=0.6),
    ]
    ledger.costs = [
        Cost(repository="calc==1.0", num_candidates=3, drawing_cpu_s=0.25, screening_cpu_s=0.0),
        Cost(repository="calc==1.0", num_candidates=0, drawing_cpu_s=0.0, screening_cpu_s=1.5, confirming_cpu_s=1.75),
    ]
    rows = {item.name: item.to_row() for item in summarize(ledger)}
    assert list(rows) == ["calc==1.0", "other==2", "bool", "boundary", "all"]
    assert rows["calc==1.0"] == {
        "name": "calc==1.0",
        "candidates": 3,
        "fates": {"kept": 1, "survived": 1, "unconfirmed": 1},
        "forked": 3,
        "compared": 2,
        "same": 1,
        "screening_cpu_s": 1.5,
        "confirmed": 2,
        "confirming_cpu_s": 1.75,
    }
    assert rows["bool"]["screening_cpu_s"] == 0.6  # forks only: collections belong to no kind
    file = tmp_path / "bugs.jsonl"
    file.write_text("".join(f'{{"patch":"{"x" * num}","kind":[]}}\n' for num in (98, 198)))  # 121 and 221 bytes
    lines = list(table_lines(ledger, file))
    assert "| calc==1.0 | 3 | 1 (33%) | 1 survived, 1 unconfirmed | 1 of 2 | 0.500 | 0.875 |" in lines
    assert lines[-3:] == [
        "3 candidates drawn in 0.2 CPU s",
        "1.750 CPU s an instance with all programs: 2,057 per core-hour",  # (0.25 + 1.5 + 1.75) / 2
        "2 instances, 171 bytes each: 150 patch, 2 kind",
    ]
