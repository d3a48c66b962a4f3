"""The rules while a run goes on: an alarm names its evidence, and is said once."""

from collections.abc import Mapping, Sequence
from typing import Any

from runs_with_faults import OPTIONS, make_rows

from turnwise.pipeline.alarms import AlarmWatch
from turnwise.pipeline.diagnosis_watch import FIRST_STEP, DiagnosisWatch


def follow(rows: list[dict[str, float | None]], stored: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """The alarms of a run with these rows, given those that it had stored before."""
    watch, alarms, lines = DiagnosisWatch(OPTIONS, lambda: stored), AlarmWatch(), []
    for row in rows:
        step = int(row["step"] or 0)
        values = {name: value for name, value in row.items() if name != "step"}
        lines += alarms.follow(step, watch.follow(step, values))
    return lines


def test_an_alarm_names_its_evidence_and_is_said_once_though_its_numbers_change() -> None:
    [line] = follow(make_rows(train__clip_fraction=(0.5, 0.9)))
    # Of eight steps the ends have two: 0.5 and 0.5 + 0.4 / 11, then 0.5 + 0.4 * 6 / 11 and 0.5 + 0.4 * 7 / 11.
    assert line.startswith(f"step {FIRST_STEP}: alarm: the loss clips the gradient of many tokens")
    assert "train/clip_fraction 0.518 in steps 1 to 2 and 0.736 in steps 7 to 8" in line
    assert "try first: widen the clip" in line
    assert "(clip_saturation in docs/diagnosis.md)" in line
    assert "said once while it lasts" in line


def test_a_sound_run_raises_none() -> None:
    assert follow(make_rows()) == []
    assert follow(make_rows(rollout__success=(0.2, 0.9))) == []


def test_a_resumed_run_knows_its_first_steps_and_forgets_those_it_takes_again() -> None:
    rows = make_rows(train__clip_fraction=0.6)
    stored = [{**row, "phase": "train"} for row in rows[:9]] + [{"phase": "sft", "step": 3}]
    [line] = follow(rows[8:9], stored)
    assert "0.6 in steps 1 to 3 and 0.6 in steps 7 to 9" in line, (
        "eight that were stored before step 9, and step 9 once"
    )


def test_what_later_steps_may_refute_is_no_alarm() -> None:
    assert follow(make_rows(train__relative_update=1e-6)) == []
