"""What a suite does before any bug is measured, and every unfit test is left out with its reason."""

from pathlib import Path

import pytest
from tiny import ADDS, FILES, SCALES, in_sandbox, write_tree

from turnwise.core.errors import DataError
from turnwise_swe.repositories.baseline import compare_runs, count_reasons, find_changed, measure_baseline
from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.repository import Baseline, Repository, read_baseline
from turnwise_swe.repositories.testing import Suite, TestRun

UNFIT = """
import os, random, time
import pytest

@pytest.mark.parametrize("x", sorted({"a", "b", "c"}, key=hash))
def test_id(x): pass
@pytest.mark.parametrize("when", [time.time_ns()])
def test_clock(when): pass
def test_fails(): assert 1 == 2
def test_sleeps(): time.sleep(1.2)
def test_writes(): open("tests/new.txt", "w").close()
def test_writes_elsewhere(tmp_path): (tmp_path / "x").write_text("")
def test_hash(): assert os.environ["PYTHONHASHSEED"] == "0"
def test_skips(): pytest.skip("no")
@pytest.mark.xfail
def test_announced(): assert 0
def test_network(): __import__("socket").create_connection(("192.0.2.1", 80), timeout=0.5)
SEEN = []
def test_first(): SEEN.append(1)
def test_after(): assert SEEN
def test_good(): pass
"""


def measure(root: Path, site_packages: Path, left_out: dict[str, str] | None = None) -> Baseline:
    suite = Suite(site_packages=site_packages, import_folders=("src",))
    return in_sandbox(
        lambda sandbox: measure_baseline(
            sandbox, root, suite, name="sums==1.0", source_folders=("src/sums",), left_out=left_out or {}
        )
    )


def test_a_tiny_suite(sums: Repository) -> None:
    baseline = sums.baseline
    assert set(baseline.passing) == {*ADDS, *SCALES}
    assert baseline.left_out == {}
    core = "src/sums/core.py::"
    assert baseline.entered[ADDS[2]] == {f"{core}add", f"{core}Total.__init__", f"{core}Total.take"}
    assert baseline.entered[SCALES[0]] >= {f"{core}scale"}
    assert f"{core}add" not in baseline.entered[SCALES[0]]
    assert all(0 < seconds < 1 for seconds in baseline.durations.values())
    assert baseline.cpu_s > 0.1
    assert read_baseline(baseline.to_row()) == baseline


def test_every_unfit_test_has_its_reason(tmp_path: Path, site_packages: Path) -> None:
    root = write_tree(tmp_path, FILES | {"tests/test_unfit.py": UNFIT, "tests/test_broken.py": "import nothing\n"})
    baseline = measure(root, site_packages, {"tests/test_core.py": "known"})
    stable = {test.split("::")[1]: outcome.status for test, outcome in baseline.outcomes.items()}
    kept = {"test_first": "passed", "test_good": "passed", "test_writes_elsewhere": "passed"}
    ids = dict.fromkeys(("test_id[a]", "test_id[b]", "test_id[c]"), "passed")
    assert stable == kept | ids | {"test_skips": "skipped", "test_announced": "xfailed"}
    reasons = {test.split("::")[-1]: reason for test, reason in baseline.left_out.items()}
    assert reasons["tests/test_core.py"] == "known"
    assert reasons["tests/test_broken.py"].startswith("cannot be collected: ")
    assert reasons["test_fails"] == "failed before any bug: assert 1 == 2"
    assert reasons["test_sleeps"].startswith("takes 1.")
    assert reasons["test_writes"] == "writes tests/new.txt in its tree"
    assert reasons["test_hash"] == "passed in one run and failed in reversed order with another hash seed"
    assert reasons["test_after"] == "passed in one run and failed in reversed order with another hash seed"
    assert "before any bug" in reasons["test_network"]
    assert sum(reason == "its id is not the same in every run" for reason in reasons.values()) == 2
    assert count_reasons(baseline.left_out)["unstable outcome"] == 2


def test_a_suite_without_a_passing_test_is_refused(tmp_path: Path, site_packages: Path) -> None:
    files = {"src/sums/__init__.py": "", "tests/test_a.py": "def test_a(): assert 0\n"}
    with pytest.raises(
        DataError, match=r"none of its 1 tests can judge a patch; tests/test_a\.py::test_a: failed before"
    ):
        measure(write_tree(tmp_path / "a", files), site_packages)
    with pytest.raises(DataError, match="pytest finds no test"):
        measure(write_tree(tmp_path / "b", {"src/sums/__init__.py": ""}), site_packages)


def test_two_runs_are_compared() -> None:
    def run(**outcomes: tuple[str, float]) -> TestRun:
        return TestRun(
            outcomes={test: Outcome(status=status, duration_s=s) for test, (status, s) in outcomes.items()},  # type: ignore[arg-type]
            unseeded=frozenset({"f"}),
        )

    one = run(a=("passed", 0.1), b=("passed", 1.5), c=("passed", 5.0), d=("passed", 0.1), f=("passed", 0.1))
    two = run(a=("passed", 9.0), b=("passed", 1.2), c=("failed", 0.1), e=("passed", 0.1), f=("passed", 0.1))
    later = run(a=("passed", 9.0), b=("failed", 9.0), e=("failed", 0.1))
    assert find_changed(one, later) == {"b": "passed in one run and failed in the same run some time later"}
    assert compare_runs(one, two) == {
        "b": "takes 1.2 s, longer than 1 s",
        "c": "passed in one run and failed in reversed order with another hash seed",
        "d": "its id is not the same in every run",
        "e": "its id is not the same in every run",
        "f": "property test without a fixed seed",
    }
