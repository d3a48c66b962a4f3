"""Decide whether a patch resolves an instance: a pure function of the outcomes of its tests.

The terms and the rule are those of SWE-bench 5.0 (`harness/grading.py`, `get_eval_tests_report` and
`get_resolution_status`): full if all FAIL_TO_PASS and all PASS_TO_PASS tests are good, partial if some but not all
FAIL_TO_PASS and all PASS_TO_PASS are, else no. A test without a status counts as failed. It is stricter in these cases,
and in no case more lenient:

- PASS_TO_PASS, skipped or failed as announced (XFAIL): good in SWE-bench. Here it is good only if the test had the same
  status before any bug, because code can call `pytest.skip` and `pytest.xfail` as well as tests can.
- FAIL_TO_PASS, failed as announced: good in SWE-bench, failed here.
- a status that SWE-bench does not have (pytest's XPASS): SWE-bench puts such a test in neither list, so it does not
  count. Here it is failed; in PASS_TO_PASS it is good if it had the same status before any bug.
- FAIL_TO_PASS empty: SWE-bench counts an empty list as all good. Here it raises.
- an expected id with more "[" than "]": SWE-bench matches ids by prefix, because some of its own are cut. Ids here are
  complete, and match exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from turnwise_swe.repositories.outcome import Status

Verdict = Literal["full", "partial", "no"]

EXCUSED = ("skipped", "xfailed", "xpassed")
"""Statuses that are good in PASS_TO_PASS if the test had them before any bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The tests of both lists, sorted into good and bad, and the verdict. Only "full" resolves."""

    verdict: Verdict
    fixed: tuple[str, ...]
    """FAIL_TO_PASS tests that are good."""
    not_fixed: tuple[str, ...]
    """FAIL_TO_PASS tests that are not."""
    kept: tuple[str, ...]
    """PASS_TO_PASS tests that are good."""
    broken: tuple[str, ...]
    """PASS_TO_PASS tests that are not."""

    @property
    def is_resolved(self) -> bool:
        """Whether the verdict is "full"."""
        return self.verdict == "full"


def resolve(
    statuses: Mapping[str, Status],
    fail_to_pass: Iterable[str],
    pass_to_pass: Iterable[str],
    *,
    before: Mapping[str, Status],
) -> Resolution:
    """Judge the statuses of a run with the patch. `before` holds the statuses without any bug.

    Raises ValueError for an empty FAIL_TO_PASS.
    """

    def is_kept(test: str) -> bool:
        status = statuses.get(test)
        return status == "passed" or (status in EXCUSED and status == before.get(test))

    fixed, not_fixed = _divide(fail_to_pass, lambda test: statuses.get(test) == "passed")
    kept, broken = _divide(pass_to_pass, is_kept)
    if not fixed and not not_fixed:
        raise ValueError("FAIL_TO_PASS is empty, so every patch would resolve; name a test that the bug breaks")
    verdict: Verdict = "no"
    if fixed and not broken:
        verdict = "partial" if not_fixed else "full"
    return Resolution(verdict=verdict, fixed=fixed, not_fixed=not_fixed, kept=kept, broken=broken)


def _divide(tests: Iterable[str], is_good: Callable[[str], bool]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    good: list[str] = []
    bad: list[str] = []
    for test in tests:
        (good if is_good(test) else bad).append(test)
    return tuple(good), tuple(bad)
