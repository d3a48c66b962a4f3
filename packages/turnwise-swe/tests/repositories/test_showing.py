"""The page that shows an instance: the bug, the issue, the failing test, and what patches are worth."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import BUGGY, CORE, INSTANCE, TESTS, in_sandbox

from turnwise.core.errors import DataError
from turnwise_swe.commands.swe import show
from turnwise_swe.repositories.diffs import make_diff
from turnwise_swe.repositories.instance import write_instances
from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.repository import Repository
from turnwise_swe.repositories.showing import MAX_LINES, _failure, show_instance
from turnwise_swe.repositories.testing import TestRun

TOLD = replace(INSTANCE, issue="Sums are wrong:\n\n```\n3 is 1\n```\n", kind=("swap",), difficulty="easy")
EDITED = make_diff(
    {"src/sums/core.py": BUGGY.encode(), "tests/test_core.py": TESTS.encode()},
    {
        "src/sums/core.py": BUGGY.replace("a - b", "a - b if a > 1 else a + b").encode(),
        "tests/test_core.py": TESTS.replace("== a + 1", "== a - 1").encode(),
    },
)


def test_the_page_has_the_bug_the_issue_the_failing_test_and_three_grades(sums: Repository) -> None:
    page = in_sandbox(functools.partial(show_instance, repository=sums, instance=TOLD, prediction=EDITED))
    lines = page.splitlines()
    assert lines[:3] == ["## sums-1", "", "sums==1.0, swap, easy. The bug:"]
    assert "-    return a + b" in lines
    assert "> Sums are wrong:\n>\n> ```\n> 3 is 1\n> ```" in page
    assert "What a tester sees: `tests/test_core.py::test_add[1]`, the first of 3, failed." in lines
    assert "E   assert 0 == (1 + 1)" in lines
    assert [line for line in lines if line.startswith("| ")] == [
        "| patch | ending | FAIL_TO_PASS good | PASS_TO_PASS good | graded |",
        "| none | `unresolved` | 0 of 3 | 2 of 2 | in one process, forgeable |",
        "| gold | `resolved` | 3 of 3 | 2 of 2 | in one process, forgeable |",
        "| the prediction | `unresolved`, without its change of tests/test_core.py | 1 of 3 | 2 of 2 | in one process, "
        "forgeable |",
    ]
    assert lines[-1] == "```"
    assert "+    return a - b if a > 1 else a + b" in lines


def test_a_traceback_has_no_address_and_no_folder_of_the_machine_and_loses_its_middle() -> None:
    details = "\n".join(
        [
            "/usr/lib/python3.11/contextlib.py:601: in __exit__",
            "src/sums/core.py:5: in add",
            *map(str, range(MAX_LINES)),
            "E   <Total object at 0x7f4fea2c9030>",
        ]
    )
    run = TestRun(outcomes={INSTANCE.fail_to_pass[0]: Outcome(status="failed", details=details)})
    lines = list(_failure(INSTANCE, run))
    assert lines[3:5] == [".../contextlib.py:601: in __exit__", "src/sums/core.py:5: in add"]
    assert lines[-2] == "E   <Total object at 0x...>"
    assert lines.count("[...]") == 1
    assert len(lines) == 2 + 2 + MAX_LINES + 1


def test_a_prediction_with_fences_stays_in_its_block(sums: Repository) -> None:
    fenced = make_diff({"src/sums/core.py": BUGGY.encode()}, {"src/sums/core.py": (CORE + '"""\n```\n"""\n').encode()})
    page = in_sandbox(functools.partial(show_instance, repository=sums, instance=TOLD, prediction=fenced))
    assert page.endswith("\n````")
    assert "| the prediction | `resolved` | 3 of 3 |" in page


def test_an_unknown_instance_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "bugs.jsonl"
    write_instances(path, [TOLD])
    with pytest.raises(DataError, match=r"no instance sums-2; it has sums-1"):
        show(instances=path, ids=["sums-2"])
