"""The verdict over a run is SWE-bench's, or a stricter one for a named reason."""

import json
import random
from pathlib import Path

import pytest

from turnwise_swe.repositories.outcome import STATUSES, Status
from turnwise_swe.repositories.resolution import EXCUSED, resolve

RECORDED = json.loads((Path(__file__).parent / "swebench_verdicts.json").read_text())
"""Of swebench 5.0.2, `get_eval_tests_report` and `get_resolution_status`: statuses, FAIL_TO_PASS, PASS_TO_PASS, the
statuses before any bug, the verdict over the statuses, and the verdict once the words of EXCUSED are replaced by PASSED
where our rule excuses them and by FAILED where it does not."""
ORDER = ("no", "partial", "full")
WORDS = {
    "passed": "PASSED",
    "failed": "FAILED",
    "error": "ERROR",
    "skipped": "SKIPPED",
    "xfailed": "XFAIL",
    "xpassed": "XPASS",
}


def test_the_recorded_verdicts_of_swebench() -> None:
    num_equal = num_stricter = 0
    for statuses, fail_to_pass, pass_to_pass, before, theirs, theirs_replaced in RECORDED:
        ours = resolve(statuses, fail_to_pass, pass_to_pass, before=before).verdict
        assert ours == theirs_replaced
        if not {statuses.get(test) for test in (*fail_to_pass, *pass_to_pass)} & set(EXCUSED):
            assert ours == theirs
            num_equal += 1
        assert ORDER.index(ours) <= ORDER.index(theirs)
        num_stricter += ours != theirs
    assert num_equal > 50
    assert num_stricter > 10


def test_random_statuses_agree_with_swebench_where_it_is_installed() -> None:
    theirs = pytest.importorskip("swebench.harness.grading")
    draw = random.Random(1)
    for _ in range(10_000):
        tests = [f"t{number}" for number in range(draw.randint(1, 7))]
        cut = draw.randint(1, len(tests))
        statuses: dict[str, Status] = {test: draw.choice(STATUSES[:3]) for test in tests if draw.random() < 0.95}
        lists = {"FAIL_TO_PASS": tests[:cut], "PASS_TO_PASS": tests[cut:], "FAIL_TO_FAIL": [], "PASS_TO_FAIL": []}
        report = theirs.get_eval_tests_report({test: WORDS[status] for test, status in statuses.items()}, lists)
        ours = resolve(statuses, tests[:cut], tests[cut:], before={})
        assert theirs.get_resolution_status(report) == f"RESOLVED_{ours.verdict.upper()}"


@pytest.mark.parametrize(
    ("fail_to_pass", "pass_to_pass", "before", "verdict"),
    [
        ("passed", "passed", "passed", "full"),
        (None, "passed", "passed", "no"),
        ("skipped", "passed", "passed", "no"),
        ("xfailed", "passed", "passed", "no"),
        ("xpassed", "passed", "passed", "no"),
        ("passed", None, "passed", "no"),
        ("passed", "error", "passed", "no"),
        ("passed", "skipped", "passed", "no"),
        ("passed", "skipped", "skipped", "full"),
        ("passed", "skipped", "xfailed", "no"),
        ("passed", "xfailed", "xfailed", "full"),
        ("passed", "xfailed", "passed", "no"),
    ],
)
def test_one_test_of_each_list(
    fail_to_pass: Status | None, pass_to_pass: Status | None, before: Status, verdict: str
) -> None:
    statuses = {test: status for test, status in (("f", fail_to_pass), ("p", pass_to_pass)) if status is not None}
    assert resolve(statuses, ["f"], ["p"], before={"p": before, "f": before}).verdict == verdict


def test_some_fixed_and_all_kept_is_partial_and_does_not_resolve() -> None:
    resolution = resolve({"a": "passed", "b": "failed", "p": "passed"}, ["a", "b"], ["p"], before={})
    assert (resolution.verdict, resolution.is_resolved) == ("partial", False)
    assert (resolution.fixed, resolution.not_fixed, resolution.kept) == (("a",), ("b",), ("p",))


def test_no_test_to_fix_is_refused() -> None:
    with pytest.raises(ValueError, match="FAIL_TO_PASS is empty"):
        resolve({"p": "passed"}, [], ["p"], before={})
