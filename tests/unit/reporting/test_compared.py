"""The section of report.html that compares the first and the last evaluation question by question."""

import json
import shutil
from pathlib import Path

import pytest

from turnwise.core.errors import StoreError
from turnwise.reporting.compared import describe_change, draw_compared
from turnwise.reporting.report import write_report
from turnwise.runs.compare import save_comparison
from turnwise.store.run_folder import RunFolder


def test_the_report_compares_question_by_question(finished_run: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(finished_run.path, tmp_path / "run")))
    assert "question by question" not in write_report(run).read_text(encoding="utf-8")
    save_comparison(run)
    page = write_report(run).read_text(encoding="utf-8")
    path = run.path / "evaluations" / "compared_000060.json"
    row = json.loads(path.read_text())["rows"][-1]
    assert f"question by question {100 * row['difference']:+.1f} [" in page
    assert "Before and after, question by question" in page
    assert f"<td>{row['second_only']} : {row['first_only']}</td>" in page
    assert "the intervals do not overlap" not in page
    path.write_text("{")
    with pytest.raises(StoreError, match=r"cannot read .*compared_000060\.json"):
        write_report(run)


def test_what_may_be_chance_is_called_that() -> None:
    row = {"kind": "all", "difference": 0.02, "low": -0.01, "high": 0.05, "p": 0.2}
    assert describe_change({"rows": [row]}).endswith("p = 0.2: this may be chance")
    assert describe_change({"rows": [row | {"p": 0.01}]}).endswith("a real gain")
    assert describe_change({"rows": [row | {"p": 0.01, "difference": -0.02}]}).endswith("a real loss")
    assert describe_change({"problem": "<one> cluster"}) == ""
    assert draw_compared({"problem": "<one> cluster"}) == '<p class="dim">Not compared: &lt;one&gt; cluster.</p>'
    assert draw_compared(None) == ""
