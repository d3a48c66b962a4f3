"""Draw the sections of report.html that show numbers: headline, comparison, curves, failures, time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from turnwise.core.metrics import define
from turnwise.reporting.charts import Series, draw_chart
from turnwise.reporting.compared import Compared, describe_change
from turnwise.reporting.console import format_seconds
from turnwise.reporting.style import NUM_COLOURS
from turnwise.reporting.summaries import (
    Summary,
    describe_behaviour,
    describe_best,
    describe_declines,
    format_success,
    is_control,
    kinds_of,
    row_of,
)

Metrics = Sequence[Mapping[str, Any]]

CHARTS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...] = (
    ("Reward and success", "Training rollouts; dots are held-out evaluations.", (
        ("reward", "train", "rollout/reward"), ("success", "train", "rollout/success"),
        ("held-out success", "evaluate", "evaluate/success"), ("held-out reward", "evaluate", "evaluate/reward"))),
    ("Tool calls per question", "Dots are held-out evaluations.", (
        ("training", "train", "rollout/tool_calls"), ("held-out", "evaluate", "evaluate/tool_calls"))),
    ("Entropy", "Nats per trained token; a fast fall means the policy stopped exploring.", (
        ("entropy", "train", "train/entropy"),)),
    ("Groups without signal", "Share in which every attempt earned the same reward: nothing to learn from.", (
        ("share", "train", "credit/no_signal_groups"),)),
    ("Gradient norm", "Before clipping.", (("norm", "train", "train/grad_norm"),)),
    ("KL and clipping", "KL to the policy RL started from, in nats; share of tokens the clip cut.", (
        ("KL", "train", "train/kl_reference"), ("clipped", "train", "train/clip_fraction"))),
    ("Sampler against trainer", "Mean |difference| of log-probabilities; near 0 unless older weights sampled.", (
        ("gap", "train", "train/logprob_gap_mean"),)),
    ("Cut off, malformed, invalid", "Shares of trajectories; malformed tool calls per trajectory.", (
        ("cut off by a limit", "train", "rollout/truncated"), ("malformed calls", "train", "rollout/parse_errors"),
        ("invalid", "train", "rollout/invalid"))),
    ("Throughput", "Tokens per second of each phase.", (
        ("sampled", "train", "rollout/tokens_per_s"), ("trained", "train", "train/tokens_per_s"))),
    ("Importance correction", "Share of trained tokens it kept; their mean weight, a dropped one counting 0.", (
        ("kept", "train", "train/correction_kept"), ("weight", "train", "train/correction_weight"))),
    ("Loss on documents", "Cross-entropy in continual pre-training, nats per token.", (
        ("loss", "cpt", "cpt/loss"),)),
    ("Warm-up loss", "Cross-entropy of the replies that are imitated, nats per token.", (
        ("loss", "sft", "sft/loss"), ("held out", "sft", "sft/heldout_loss"))),
)  # fmt: skip
"""Title, note, and lines as (label, phase, metric)."""

SCHEDULE_CHARTS: tuple[tuple[str, str, tuple[tuple[str, str, str], ...]], ...] = (
    ("Age of trained tokens", "Versions between the weights that sampled a token and those that trained on it.", (
        ("mean", "train", "train/staleness_mean"), ("largest", "train", "train/staleness_max"))),
    ("Idle seconds per step", "The trainer waits for groups; the engine waits for weights, tools or new groups.", (
        ("trainer", "train", "schedule/trainer_idle_seconds"), ("engine", "train", "schedule/engine_idle_seconds"))),
)  # fmt: skip
"""Drawn for asynchronous runs only, as `CHARTS`."""

OWN_PLACES = frozenset({"rollout", "train", "credit", "schedule", "dropped", "annotate", "curriculum"})
"""First parts of metric names that have their own charts, or none; metrics with any other first part are drawn as
they come."""

STEP_NAMES = {"cpt": "step of pre-training", "sft": "warm-up step"}
"""What the steps of a phase are called below its charts."""
PHASES = (
    ("pre-training", "cpt/seconds"),
    ("warm-up", "sft/seconds"),
    ("rollout", "rollout/seconds"),
    ("training", "train/seconds"),
)


def draw_headline(summaries: Sequence[Summary], compared: Compared | None = None) -> str:
    """Say in a few sentences, computed from the evaluations, what training changed; whether it is chance, from the
    comparison of paired tasks if there is one, else from the intervals."""
    plain = [summary for summary in summaries if not is_control(summary)]
    totals = [row_of(summary, "all") for summary in plain]
    if not totals or totals[-1] is None:
        return '<p class="lead">No held-out evaluation was recorded, so nothing can be said about what was learned.</p>'
    first, last = totals[0], totals[-1]
    if len(plain) == 1 or first is None:
        success = f"<b>{format_success(last)}</b> of {last['n']} questions"
        return f'<p class="lead">Held-out success {escape(plain[-1]["label"])}: {success}.</p>'
    verdict = "a real gain: the intervals do not overlap"
    if last["high"] < first["low"]:
        verdict = "a real loss: the intervals do not overlap"
    elif last["low"] <= first["high"]:
        verdict = "the intervals overlap, so this may be chance"
    verdict = (describe_change(compared) if compared else "") or verdict
    labels = escape(plain[0]["label"]), escape(plain[-1]["label"])
    lead = (
        f'<p class="lead">Held-out success went from <b>{format_success(first)}</b> {labels[0]} '
        f"to <b>{format_success(last)}</b> {labels[1]}, on {last['n']} questions: {verdict}.</p>"
    )
    worse = "".join(
        f'<p class="lead"><b>{escape(text[0].upper() + text[1:])}.</b></p>'
        for text in (describe_declines(plain), describe_best(plain))
        if text
    )
    return worse + lead + _explain(plain[0], plain[-1]) + _draw_controls(summaries, last)


def _explain(before: Summary, after: Summary) -> str:
    """Name the kind of question that moved the total most, and what the policy does differently there."""
    moves = []
    for kind in kinds_of([before, after]):
        old, new = row_of(before, kind), row_of(after, kind)
        if kind != "all" and old is not None and new is not None and old["n"] and new["n"]:
            moves.append(((new["success"] - old["success"]) * new["n"], kind, old, new))
    if not moves:
        old, new = row_of(before, "all"), row_of(after, "all")
        if old is None or new is None:
            return ""
        return f"<p>Tool calls per question went from {old['tool_calls']:.2f} to {new['tool_calls']:.2f}.</p>"
    share, kind, old, new = max(moves, key=lambda move: abs(move[0]))
    if not share:
        return "<p>No kind of question changed its success.</p>"
    truncated = ""
    if old["truncated"] != new["truncated"]:
        truncated = (
            f", and trajectories cut off by a limit from {100 * old['truncated']:.1f}% to {100 * new['truncated']:.1f}%"
        )
    return (
        f"<p>Why: the largest part of the change is on <b>{escape(kind)}</b> questions, where success went from "
        f"{100 * old['success']:.1f}% to {100 * new['success']:.1f}% while tool calls per question went from "
        f"<b>{old['tool_calls']:.2f}</b> to <b>{new['tool_calls']:.2f}</b>{truncated}.</p>"
    )


def _draw_controls(summaries: Sequence[Summary], last: Mapping[str, Any]) -> str:
    rows = [(summary, row_of(summary, "all")) for summary in summaries if is_control(summary)]
    words = [f"{escape(summary['label'])} {100 * row['success']:.1f}%" for summary, row in rows if row is not None]
    if not words:
        return ""
    return f"<p>Controls on the same questions, against {100 * last['success']:.1f}%: {'; '.join(words)}.</p>"


def draw_results(summaries: Sequence[Summary]) -> str:
    """Draw the comparison per kind of question."""
    if not summaries:
        return '<p class="dim">No held-out evaluation was recorded: evaluate.tasks is 0, or the run is too short.</p>'
    head = "".join(f"<th>{escape(str(summary['label']))}</th><th>calls</th>" for summary in summaries)
    body = []
    for kind in kinds_of(summaries):
        rows = [row_of(summary, kind) for summary in summaries]
        cells = "".join("<td>-</td><td>-</td>" if row is None else _success_cell(row) for row in rows)
        count = max((row["n"] for row in rows if row is not None), default=0)
        body.append(f"<tr{' class=all' if kind == 'all' else ''}><td>{escape(kind)}</td><td>{count}</td>{cells}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr><th>questions</th><th>n</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
        '<p class="dim">Success in percent with its 95% interval, in which attempts at one question belong together; '
        "mean tool calls per episode. "
        "Questions that could not be scored are not part of n.</p>"
        + "".join(f"<p>{escape(text)}.</p>" for text in map(describe_behaviour, summaries) if text)
    )


def _success_cell(row: Mapping[str, Any]) -> str:
    share, _, interval = format_success(row).partition(" ")
    return f"<td>{share} <small>{interval}</small></td><td><small>{row['tool_calls']:.2f}</small></td>"


def draw_curves(metrics: Metrics) -> str:
    """Draw every chart that has data, then the parts of rewards, other metrics recorded by RL steps or measured at
    checkpoints, and dropped tokens."""
    listed = (_draw_listed(metrics, *chart) for chart in CHARTS)
    drawn = "".join((*listed, _draw_open(metrics), _draw_measured(metrics), _draw_dropped(metrics)))
    return f'<div class="charts">{drawn}</div>' if drawn else '<p class="dim">No metrics were recorded yet.</p>'


def draw_schedule(metrics: Metrics) -> str:
    """Draw how old trained tokens were, and who waited for whom; "" before the first step of a schedule."""
    rows = [row for row in metrics if row["phase"] == "train"]
    ages = sorted(
        (int(match[1]), name) for name in _list_names(rows) if (match := re.fullmatch(r"train/age_(\d+)_share", name))
    )
    shares = _draw_together(
        rows,
        [(f"age {age}", name) for age, name in ages],
        title="Trained tokens by age",
        note="Share of the tokens of a step, by how many versions older their weights were.",
    )
    drawn = "".join(_draw_listed(metrics, *chart) for chart in SCHEDULE_CHARTS) + shares
    if not drawn:
        return ""
    trainer, engine, publishing = (
        format_seconds(sum(row.get(f"schedule/{name}_seconds") or 0.0 for row in rows))
        for name in ("trainer_idle", "engine_idle", "publish")
    )
    waits = (
        f"<p>Rollouts went on while the trainer stepped. The trainer was idle for <b>{trainer}</b>, the engine for "
        f"<b>{engine}</b>; moving weights took <b>{publishing}</b>.</p>"
    )
    return f'{waits}<div class="charts">{drawn}</div>'


def _draw_listed(metrics: Metrics, title: str, note: str, lines: Sequence[tuple[str, str, str]]) -> str:
    """Draw one chart of `CHARTS`."""
    series = [
        Series(
            label=label,
            points=tuple((row["step"], row.get(name)) for row in metrics if row["phase"] == phase and name in row),
            dots=phase == "evaluate",
        )
        for label, phase, name in lines
    ]
    return draw_chart(title, series, x_label=STEP_NAMES.get(lines[0][1], "RL step"), note=note)


def _draw_open(metrics: Metrics) -> str:
    """Draw metrics that no table lists: the parts of rewards together, each other metric alone, because units
    differ."""
    rows = [row for row in metrics if row["phase"] == "train"]
    names = [name for name in _list_names(rows) if name.partition("/")[0] not in OWN_PLACES]
    parts = [(name.removeprefix("reward/"), name) for name in names if name.startswith("reward/")]
    charts = [_draw_together(rows, parts, title="Parts of the reward", note="Mean over scored trajectories.")]
    for name in names:
        if not name.startswith("reward/"):
            definition = define(name)
            note = "" if definition.text == name else definition.text
            series = Series(label="mean", points=tuple((row["step"], row[name]) for row in rows if name in row))
            charts.append(draw_chart(name.removeprefix("signal/"), [series], x_label="RL step", note=note))
    return "".join(charts)


def _draw_measured(metrics: Metrics) -> str:
    """Draw measurements at checkpoints that no table lists, such as a game's exploitability, each alone."""
    rows = [row for row in metrics if row["phase"] not in ("cpt", "sft", "train")]
    charts = []
    for name in _list_names(rows):
        if name.partition("/")[0] not in {*OWN_PLACES, "evaluate"}:
            points = tuple((row["step"], row[name]) for row in rows if name in row)
            charts.append(
                draw_chart(name, [Series(label="measured", points=points, dots=True)], x_label="RL step", note="")
            )
    return "".join(charts)


def _draw_dropped(metrics: Metrics) -> str:
    """Draw sampled tokens that do not train, by reason."""
    rows = [row for row in metrics if row["phase"] == "train"]
    reasons = [
        (name.removeprefix("dropped/").replace("_", " "), name)
        for name in _list_names(rows)
        if name.startswith("dropped/")
    ]
    return _draw_together(rows, reasons, title="Dropped tokens", note="Sampled tokens that do not train, by reason.")


def _draw_together(rows: Metrics, lines: Sequence[tuple[str, str]], *, title: str, note: str) -> str:
    """Draw lines `(label, metric)` in charts of at most `NUM_COLOURS`; a row without the metric counts 0."""
    charts = []
    for start in range(0, len(lines), NUM_COLOURS):
        series = [
            Series(label=label, points=tuple((row["step"], row.get(name, 0.0)) for row in rows))
            for label, name in lines[start : start + NUM_COLOURS]
        ]
        charts.append(draw_chart(title, series, x_label="RL step", note=note))
    return "".join(charts)


def _list_names(rows: Metrics) -> list[str]:
    """Every metric that a row has, sorted."""
    return sorted({name for row in rows for name in row if "/" in name})


def draw_failures(batches: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], metrics: Metrics) -> str:
    """Draw how trajectories ended in each evaluation `(label, rows)`, the errors, and the share invalid in training."""
    parts = []
    if batches:
        stops = sorted({row["stop"] for _, rows in batches for row in rows})
        counts = [(stop, [sum(row["stop"] == stop for row in rows) for _, rows in batches]) for stop in stops]
        counts.append(("reward invalid", [sum("invalid" in row["reward"] for row in rows) for _, rows in batches]))
        head = "".join(f"<th>{escape(label)}</th>" for label, _ in batches)
        body = "".join(
            f"<tr><td>{escape(name)}</td>{''.join(f'<td>{n}</td>' for n in numbers)}</tr>" for name, numbers in counts
        )
        table = f"<thead><tr><th>how it ended</th>{head}</tr></thead><tbody>{body}</tbody>"
        parts.append(f'<div class="scroll"><table>{table}</table></div>')
    errors = Counter(row["error"] for _, rows in batches for row in rows if row["error"])
    if errors:
        items = "".join(f"<li>{count} × {escape(text[:300])}</li>" for text, count in errors.most_common(5))
        parts.append(f"<p>Most frequent errors:</p><ul>{items}</ul>")
    losses = [row["rollout/invalid"] for row in metrics if row.get("rollout/invalid") is not None]
    if losses:
        share = sum(losses) / len(losses)
        parts.append(
            f"<p>In training {100 * share:.2f}% of trajectories had an invalid reward; they were left out of credit "
            "and loss.</p>"
        )
    return "".join(parts) or '<p class="dim">Nothing was recorded.</p>'


def draw_time(metrics: Metrics, *, overlap: bool = False) -> str:
    """Draw the seconds of each phase; `overlap` says that rollouts continued while the trainer stepped."""
    seconds = [(label, sum(row.get(name) or 0.0 for row in metrics)) for label, name in PHASES]
    total = sum(value for _, value in seconds)
    if not total:
        return '<p class="dim">No timings were recorded yet.</p>'
    spans = "".join(
        f'<span class="k{n}" style="width:{100 * value / total:.1f}%"></span>'
        for n, (_, value) in enumerate(seconds, start=1)
    )
    keys = "".join(
        f'<span class="key k{n}">{label} <b>{format_seconds(value)}</b> ({100 * value / total:.0f}%)</span>'
        for n, (label, value) in enumerate(seconds, start=1)
    )
    overlapping = " Rollouts and training overlapped, so their seconds add up to more than passed." if overlap else ""
    note = f'<p class="dim">Evaluations, checkpoints and start-up are not part of this.{overlapping}</p>'
    return f'<div class="bar">{spans}</div><div class="legend">{keys}</div>{note}'
