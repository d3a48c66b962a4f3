from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import StoreError
from turnwise.reporting.charts import Series, compute_ticks, draw_chart
from turnwise.reporting.examples import choose_examples, shade
from turnwise.reporting.report import write_report
from turnwise.reporting.sections import draw_curves, draw_headline, draw_schedule, draw_time
from turnwise.store.run_folder import RunFolder


@pytest.fixture(scope="module")
def page(finished_run: RunFolder) -> str:
    return write_report(finished_run).read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Collects tags, and checks that each that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_has_every_section_is_well_formed_and_small(page: str) -> None:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    found = {attributes["id"] for _, attributes in reader.tags if "id" in attributes}
    assert found == {"headline", "results", "curves", "changes", "failures", "time", "config"}
    assert len(page) < 2_000_000


def test_a_page_loads_nothing_and_runs_nothing(page: str) -> None:
    reader = Reader()
    reader.feed(page)
    assert not re.search(r"https?://|url\(|@import", page)
    assert not {tag for tag, _ in reader.tags} & {"script", "link", "img", "iframe", "object", "form"}
    assert not [a for _, attributes in reader.tags for a in attributes if a in ("src", "href") or a.startswith("on")]


def test_hostile_text_stays_text(page: str) -> None:
    assert "<script" not in page
    assert "&lt;script src=&quot;//evil.example/x.js&quot;&gt;" in page
    assert "&lt;b&gt;tool crashed&lt;/b&gt;" in page  # an error message
    assert "demo &lt;run&gt;" in page  # the run's own name


def test_the_headline_says_what_changed_and_where_it_came_from(page: str) -> None:
    # all before: (0.9 + 0.12) / 2 = 0.51; after: (0.9 + 0.94) / 2 = 0.92; 1hop did not move, 2hop by 0.82
    text = re.sub(r"<[^>]+>", "", page)
    assert (
        "from 51.0% [46.0,\u00a056.0] before RL to 92.0% [87.0,\u00a097.0] after RL, on 39 questions: a real gain"
        in text
    )
    assert (
        "on 2hop questions, where success went from 12.0% to 94.0% while tool calls per question went from 1.00 to 2.00"
        in text
    )
    assert "after RL, search_off 2.0%" in text


def test_an_overlap_of_intervals_is_not_called_a_gain() -> None:
    def summary(name: str, success: float) -> dict[str, object]:
        row = {
            "kind": "all",
            "n": 50,
            "success": success,
            "low": success - 0.1,
            "high": success + 0.1,
            "tool_calls": 1.0,
            "truncated": 0.0,
        }
        return {"name": name, "label": name, "step": 0, "rows": [row]}

    assert "may be chance" in draw_headline([summary("heldout_000000", 0.5), summary("heldout_000010", 0.6)])
    assert "real loss" in draw_headline([summary("heldout_000000", 0.8), summary("heldout_000010", 0.5)])


def test_tokens_are_told_apart(page: str) -> None:
    assert 'class="observation">observation</span> (never trains)' in page
    assert page.count('class="prompt"') >= 12  # 6 tasks twice, and the legend
    assert 'class="observation" title="observation">&lt;information&gt;' in page
    assert re.search(r'<i class="p[0-4]" title="p \d\.\d\d, logprob -?\d+\.\d\d">&lt;search&gt; </i>', page)


def test_a_run_that_has_just_begun_has_a_report(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    run.write_json("config.json", dump_resolved(RunConfig()))
    text = write_report(run).read_text(encoding="utf-8")
    assert "No held-out evaluation was recorded" in text
    assert "No metrics were recorded yet" in text


def test_a_broken_summary_is_named(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    run.write_json("config.json", dump_resolved(RunConfig()))
    (run.path / "evaluations").mkdir()
    (run.path / "evaluations" / "heldout_000000.summary.json").write_text("{")
    with pytest.raises(StoreError, match=r"heldout_000000\.summary\.json"):
        write_report(run)


def make_row(task: str, success: float, calls: int) -> dict[str, object]:
    return {
        "id": {"draw": ord(task), "member": 0, "attempt": 0, "role": "agent"},
        "task": {"id": task},
        "reward": {"scored": {"total": success, "parts": []}},
        "turns": [{"tool_records": [None] * calls}],
    }


def test_examples_prefer_what_became_right_with_most_searches_and_keep_a_failure() -> None:
    outcomes = {"a": (0, 1, 1), "b": (0, 1, 3), "c": (0, 0, 1), "d": (1, 0, 1), "e": (1, 1, 2), "f": (0, 1, 2)}
    before = [make_row(task, first, 1) for task, (first, _, _) in outcomes.items()]
    after = [make_row(task, second, calls) for task, (_, second, calls) in outcomes.items()]
    assert [(verdict, new[0]["task"]["id"]) for verdict, _, new in choose_examples(before, after, 4)] == [
        ("wrong → right", "b"),
        ("wrong → right", "f"),
        ("right → wrong", "d"),
        ("still wrong", "c"),
    ]
    before[2]["reward"] = {
        "invalid": {"reason": "crash", "retryable": True}
    }  # c could not be scored: no longer "still wrong"
    assert "still wrong" not in [verdict for verdict, _, _ in choose_examples(before, after, 99)]
    assert choose_examples(before, after, 0) == []
    assert len(choose_examples(before, after, 99)) == 5


def test_ticks_are_round_and_cover_the_values() -> None:
    assert compute_ticks(0.0, 1.0, 4) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert compute_ticks(0.0, 37.0, 4) == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert compute_ticks(-0.3, 0.5, 4) == [-0.4, -0.2, 0.0, 0.2, 0.4, 0.6]
    assert compute_ticks(0.0, 1e-16, 4) == [0.0, 2.5e-17, 5e-17, 7.5e-17, 1e-16]
    assert compute_ticks(0.0, 0.0, 4)[-1] > 0  # a constant zero still has an axis


def test_a_gap_breaks_the_line_and_no_value_draws_nothing() -> None:
    # 1, 2 | gap | 4 alone | gap | 6, 7: two polylines and one dot
    line = Series(label="x", points=((1, 0.1), (2, 0.2), (3, None), (4, 0.3), (5, None), (6, 0.1), (7, 0.1)))
    drawn = draw_chart("t", [line], x_label="step")
    assert (drawn.count("<polyline"), drawn.count("<circle")) == (2, 1)
    assert draw_chart("t", [Series(label="x", points=((1, None),))], x_label="step") == ""


def test_what_is_not_finite_is_a_gap() -> None:
    line = Series(label="x", points=((1, 0.1), (2, 0.2), (3, math.inf), (4, 0.3), (5, math.nan)))
    drawn = draw_chart("t", [line], x_label="step")
    assert (drawn.count("<polyline"), drawn.count("<circle")) == (1, 1)
    assert "<b>0.3</b>" in drawn


def test_time_is_split_by_phase() -> None:
    # 30 s rollout and 10 s training: 75% and 25%
    text = draw_time([{"rollout/seconds": 30.0, "train/seconds": None}, {"train/seconds": 10.0}])
    assert "rollout <b>30s</b> (75%)" in text
    assert "training <b>10s</b> (25%)" in text


@pytest.mark.parametrize(
    ("logprob", "expected"), [(0.0, 4), (-0.7, 2), (-9.0, 0), (float("-inf"), 0), (float("nan"), 0)]
)
def test_shade_follows_the_probability(logprob: float, expected: int) -> None:
    assert shade(logprob) == expected  # exp(-0.7) = 0.497: third fifth


def read_text(page: str) -> str:
    return re.sub(r"<[^>]+>", " ", page)


def train_row(step: int, **values: float | None) -> dict[str, object]:
    return {"step": step, "phase": "train", **{name.replace("__", "/"): value for name, value in values.items()}}


def find_chart(page: str, title: str) -> str:
    """The figure of that title."""
    [figure] = [figure for figure in re.findall(r"<figure.*?</figure>", page) if f"<b>{title}</b>" in figure]
    return figure


def test_parts_of_rewards_and_signals_are_curves_without_a_table() -> None:
    rows = [
        train_row(1, reward__success=0.0, reward__style=0.5, signal__depth=2.0, mine__speed=7.0),
        train_row(2, reward__success=1.0, reward__style=0.25, signal__depth=3.0, mine__speed=9.0),
    ]
    page = draw_curves(rows)
    parts = find_chart(page, "Parts of the reward")
    assert parts.count("<polyline") == 2
    assert "style <b>0.25</b>" in parts
    assert "depth" in find_chart(page, "depth")
    assert "<b>9</b>" in find_chart(page, "mine/speed")
    assert page.count("<figure") == 3


def test_what_was_measured_at_checkpoints_is_dots() -> None:
    rows = [
        {"step": step, "phase": "games", "games/exploitability": value, "evaluate/success": 0.5}
        for step, value in ((0, 0.4), (20, 0.05))
    ]
    page = draw_curves(rows)
    chart = find_chart(page, "games/exploitability")
    assert chart.count('class="dot') == 2
    assert "<b>0.05</b>" in chart
    assert page.count("<figure") == 1, "held-out success has a chart of its own, of the phase evaluate"


def test_more_lines_than_colours_take_several_charts() -> None:
    rows = [train_row(step, **{f"reward__part{n}": float(n) for n in range(8)}) for step in (1, 2)]
    page = draw_curves(rows)
    # 8 parts, 6 colours: charts of 6 and 2 lines.
    assert [figure.count("<polyline") for figure in re.findall(r"<figure.*?</figure>", page)] == [6, 2]
    assert "s7" not in page


def test_dropped_tokens_are_a_curve_by_reason_and_a_step_without_any_counts_zero() -> None:
    rows = [train_row(1, dropped__late=40.0), train_row(2, dropped__too_stale=8.0), train_row(3, train__loss=0.1)]
    chart = find_chart(draw_curves(rows), "Dropped tokens")
    # Last values: no token was dropped in step 3.
    assert "late <b>0</b>" in chart
    assert "too stale <b>0</b>" in chart
    assert chart.count("<polyline") == 2
    assert "<circle" not in chart, "neither line has a gap"


def test_a_schedule_shows_ages_and_who_waited() -> None:
    rows = [
        train_row(
            1, train__staleness_mean=0.0, train__staleness_max=0.0, train__age_0_share=1.0,
            schedule__trainer_idle_seconds=20.0, schedule__engine_idle_seconds=1.0, schedule__publish_seconds=0.5,
        ),
        train_row(
            2, train__staleness_mean=1.25, train__staleness_max=10.0, train__age_0_share=0.75, train__age_10_share=0.25,
            schedule__trainer_idle_seconds=10.0, schedule__engine_idle_seconds=1.5, schedule__publish_seconds=1.5,
        ),
    ]  # fmt: skip
    page = draw_schedule(rows)
    # 20 + 10 s, 1 + 1.5 s rounded to even, 0.5 + 1.5 s
    assert "The trainer was idle for  30s , the engine for  2s ; moving weights took  2s ." in read_text(page)
    ages = find_chart(page, "Trained tokens by age")
    assert ages.index("age 0 <b>0.75</b>") < ages.index("age 10 <b>0.25</b>")
    assert ages.count("<polyline") == 2, "a step without a token of an age counts 0"
    assert "largest <b>10</b>" in find_chart(page, "Age of trained tokens")
    assert "trainer <b>10</b>" in find_chart(page, "Idle seconds per step")
    assert draw_schedule([{"step": 1, "phase": "sft", "sft/loss": 1.0}]) == ""


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_only_an_asynchronous_run_has_a_section_on_its_schedule(tmp_path: Path, max_staleness: int) -> None:
    run = RunFolder.create(tmp_path / "run")
    config = RunConfig.model_validate({"schedule": {"max_staleness": max_staleness}})
    run.write_json("config.json", dump_resolved(config))
    seconds = {"rollout/seconds": 3.0, "train/seconds": 1.0, "schedule/trainer_idle_seconds": 1.0}
    run.append_metrics(1, "train", {"train/staleness_mean": 0.0, "train/staleness_max": 0.0, **seconds})
    page = write_report(run).read_text(encoding="utf-8")
    assert ('id="schedule"' in page) == bool(max_staleness)
    assert ("Rollouts and training overlapped" in page) == bool(max_staleness)
    assert ("Trained tokens by age" in page) is False, "no row has an age"
