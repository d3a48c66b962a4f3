"""Predictions are read in SWE-bench's three formats, and a report counts what became of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import INSTANCE

from turnwise.core.errors import DataError
from turnwise_swe.repositories.grading import Ending, Grade
from turnwise_swe.repositories.predictions import build_report, join_reports, load_predictions, load_samples

TWO = (INSTANCE, replace(INSTANCE, instance_id="sums-2"))
ROWS: list[dict[str, str | None]] = [
    {"instance_id": "sums-1", "model_patch": "x", "model_name_or_path": "m"},
    {"instance_id": "sums-2", "model_patch": None},
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.jsonl", "\n".join(map(json.dumps, ROWS))),
        ("p.jsonl", "\ufeff" + "\n".join(map(json.dumps, ROWS))),
        ("p.json", json.dumps(ROWS)),
        ("p.json", "\ufeff" + json.dumps(ROWS)),
        ("p.json", json.dumps({row["instance_id"]: row for row in ROWS})),
    ],
)
def test_every_format_reads_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert load_predictions(tmp_path / name, TWO) == {"sums-1": "x", "sums-2": ""}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"model_patch": ""}], "no instance_id"),
        ([{"instance_id": "sums-1"}], "no model_patch"),
        ([{"instance_id": "sums-1", "model_patch": 3}], "no model_patch"),
        ([ROWS[0], ROWS[0]], "p.json has a second prediction for sums-1; keep one per instance"),
        ([{"instance_id": "other", "model_patch": ""}], "other, which is not among the 2 instances"),
        ([], "p.json has no predictions"),
        ({"sums-1": ROWS[1]}, "'sums-2' under the key 'sums-1'; make them equal"),
        (3, "neither a list"),
        (["x"], "neither a list"),
    ],
)
def test_a_wrong_prediction_is_named(tmp_path: Path, rows: object, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(rows))
    with pytest.raises(DataError, match=message):
        load_predictions(path, TWO)


def test_the_report_counts_each_ending_once() -> None:
    endings: list[Ending] = [
        "resolved",
        "unresolved",
        "timeout",
        "no_patch",
        "patch_failed",
        "infrastructure",
        "no_patch",
    ]
    instances = [replace(INSTANCE, instance_id=str(number)) for number in range(len(endings))]
    grades = [Grade(instance_id=str(number), ending=ending) for number, ending in enumerate(endings)]
    patches = {str(number): "x" for number in range(6)}  # the last instance has no prediction
    report = build_report(instances, patches, grades)
    counts = {
        name: report[f"{name}_instances"] for name in ("total", "submitted", "completed", "resolved", "unresolved")
    }
    assert counts == {"total": 7, "submitted": 6, "completed": 3, "resolved": 1, "unresolved": 2}
    assert report["empty_patch_ids"] == ["3"]
    assert report["error_ids"] == ["4", "5"]
    assert report["incomplete_ids"] == ["6"]
    assert report["forgeable_instances"] == 3
    assert [grade.score for grade in grades] == [1.0, 0.0, 0.0, 0.0, 0.0, None, 0.0]


def test_several_predictions_of_an_instance_are_rounds(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    rows = [("sums-1", "a"), ("sums-1", "b"), ("sums-2", "c"), ("sums-1", "d"), ("sums-2", None)]
    path.write_text("\n".join(json.dumps({"instance_id": name, "model_patch": patch}) for name, patch in rows))
    rounds = load_samples(path, TWO)
    assert rounds == [{"sums-1": "a", "sums-2": "c"}, {"sums-1": "b", "sums-2": ""}, {"sums-1": "d"}]
    endings: list[list[Ending]] = [["resolved", "unresolved"], ["unresolved", "no_patch"], ["resolved", "no_patch"]]
    reports = [
        build_report(
            TWO,
            patches,
            [Grade(instance_id=one.instance_id, ending=ending) for one, ending in zip(TWO, ended, strict=True)],
        )
        for patches, ended in zip(rounds, endings, strict=True)
    ]
    assert join_reports(reports[:1]) == reports[0]
    joined = join_reports(reports)
    assert (joined["submitted_predictions"], joined["resolved_predictions"]) == (5, 2)
    assert joined["mean_resolved"] == pytest.approx((2 / 3 + 0 / 2) / 2)
    assert joined["any_resolved_ids"] == ["sums-1"]
    assert joined["rounds"] == reports
