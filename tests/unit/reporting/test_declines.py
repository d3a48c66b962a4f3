"""What got worse is said first: in the report and in the last lines of a run."""

import io
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.reporting.console import find_width, results_table
from turnwise.reporting.sections import draw_headline
from turnwise.reporting.summaries import (
    describe_behaviour,
    describe_best,
    describe_declines,
    describe_samples,
    list_declines,
)


def summary(step: int, label: str, *, control: str = "", **right: tuple[int, int]) -> dict[str, Any]:
    """An evaluation with so many right of so many tasks, by kind."""
    total = tuple(sum(each) for each in zip(*right.values(), strict=True))
    rows = []
    for kind, (count, n) in {**right, "all": total}.items():
        low, high = compute_wilson_interval(count, n)
        rows.append(
            {"kind": kind, "n": n, "success": count / n, "low": low, "high": high, "tool_calls": 1.0, "truncated": 0.0}
        )
    return {"name": f"heldout_{step:06d}{control}", "label": label, "step": step, "rows": rows}


BEFORE = summary(0, "after SFT", twin=(4, 15), mentor=(2, 14), boss=(10, 100), big=(90, 100), same=(7, 9))
AFTER = summary(60, "after RL", twin=(0, 15), mentor=(0, 14), boss=(95, 100), big=(40, 100), same=(6, 9))


def test_kinds_that_got_worse_stand_by_the_share_that_was_lost() -> None:
    declines = list_declines([BEFORE, AFTER])
    # mentor and twin lost all, big 5 of 9; one task of nine is no decline.
    assert [(each.kind, each.is_sure) for each in declines] == [("mentor", False), ("twin", False), ("big", True)]
    assert describe_declines([BEFORE, AFTER]) == (
        "worse than after SFT at 3 of 5 kinds (few tasks each: some of it may be chance): mentor 14.3% → 0.0% of 14 "
        "tasks; twin 26.7% → 0.0% of 15 tasks; big 90.0% → 40.0% of 100 tasks"
    )


def test_nothing_is_said_where_nothing_got_worse() -> None:
    assert describe_declines([BEFORE, BEFORE]) == describe_declines([BEFORE]) == describe_declines([]) == ""
    control = summary(60, "without search", control="_search_off", twin=(0, 15))
    assert describe_declines([BEFORE, control]) == ""
    assert describe_best([BEFORE, AFTER, control]) == ""


def test_the_report_names_it_before_the_gain() -> None:
    page = draw_headline([BEFORE, AFTER])
    assert page.index("Worse than after SFT at 3 of 5 kinds") < page.index("Held-out success went from")


def test_a_better_step_than_the_last_is_named() -> None:
    middle = summary(40, "step 40", one=(95, 100))
    text = describe_best([summary(0, "before", one=(10, 100)), middle, summary(60, "after RL", one=(80, 100))])
    assert text.startswith("best held-out success is that of step 40: 95.0%")
    assert "after the last step it is 80.0%" in text
    # Of equal ones the last is the best.
    assert describe_best([middle, summary(60, "after RL", one=(95, 100))]) == ""


@pytest.mark.parametrize(("parts", "text"), [({}, "mean reward 0.250"), ({"format": 1.0}, "0.250 (format 1.000)")])
def test_reward_and_parts_of_an_evaluation_are_told(parts: dict[str, float], text: str) -> None:
    row = {"kind": "all", "n": 4, "tool_calls": 1.0, "response_tokens": 3.0, "recovered": None}
    row |= {"reward": 0.25, "parts": parts}
    assert text in describe_behaviour({"label": "after RL", "rows": [row]})


def test_what_could_not_be_scored_is_told_beside_the_attempts() -> None:
    share = {"low": 0.1, "high": 0.3}
    row = {"kind": "all", "n": 40, "episodes": 140, "invalid": 20}
    row |= {"pass_at": [{"k": 1, "n": 40, "share": 0.2, **share}, {"k": 4, "n": 30, "share": 0.2, **share}]}
    assert describe_samples(row) == (
        "140 episodes on 40 tasks (20 more could not be scored), "
        "pass@4 20.0% [10.0,\u00a030.0] of the 30 with 4 scored samples, "
    )
    assert describe_samples({"n": 4, "episodes": 4, "invalid": 1}) == "1 more could not be scored, "
    assert describe_samples({"n": 4, "episodes": 4, "invalid": 0}) == ""


def test_a_table_in_a_pipe_is_as_wide_as_it_needs() -> None:
    table = results_table([{**AFTER, "label": f"after RL, control number {i}"} for i in range(8)])
    stream = io.StringIO()
    Console(file=stream, width=find_width(table)).print(table)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) > 140
    assert sum(line.count("95.0% [") == 8 for line in lines) == 1, "a row is one line"
    assert "…" not in stream.getvalue()
    assert find_width(Table()) == 80
