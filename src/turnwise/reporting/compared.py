"""Show in report.html how the last evaluation of a run differs from the first, task by task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from turnwise.core.errors import StoreError
from turnwise.reporting.comparison_table import comparison_lines
from turnwise.reporting.summaries import Summary, is_control

Compared = Mapping[str, Any]
"""`Comparison.to_json()`, or `problem`: why the two evaluations cannot be compared."""


def load_compared(run: Path, summaries: Sequence[Summary]) -> Compared | None:
    """Load the comparison of the first with the last evaluation; None if the run has none. Raises StoreError naming a
    file that cannot be read."""
    steps = [summary["step"] for summary in summaries if not is_control(summary)]
    path = run / "evaluations" / f"compared_{max(steps, default=0):06d}.json"
    if not path.is_file():
        return None
    try:
        compared = json.loads(path.read_bytes())
        return compared if "problem" in compared or compared["rows"] else None
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise StoreError(f"cannot read {path} ({cause}); delete it and run `turnwise report {run}`") from cause


def describe_change(compared: Compared) -> str:
    """Say whether the change is one, by the paired difference; "" if the evaluations cannot be compared."""
    if "problem" in compared:
        return ""
    row = compared["rows"][-1]
    verdict = "this may be chance"
    if row["p"] < 0.05 and row["difference"]:
        verdict = f"a real {'gain' if row['difference'] > 0 else 'loss'}"
    return f"question by question {_format_difference(row)} points, p = {row['p']:.2g}: {verdict}"


def draw_compared(compared: Compared | None) -> str:
    """Draw the table of kinds, the verdict, and what so many tasks can see; "" without a comparison."""
    if compared is None:
        return ""
    if "problem" in compared:
        return f'<p class="dim">Not compared: {escape(str(compared["problem"]))}.</p>'
    body = "".join(_draw_row(row) for row in compared["rows"])
    lines = "".join(f"<p>{escape(line[0].upper() + line[1:])}.</p>" for line in comparison_lines(compared))
    return (
        '<div class="scroll"><table><thead><tr><th>questions</th><th>n</th><th>clusters</th><th>points</th>'
        "<th>better : worse</th><th>p</th><th>p (Holm)</th><th>sees, points</th></tr></thead>"
        f"<tbody>{body}</tbody></table></div>{lines}"
    )


def _draw_row(row: Mapping[str, Any]) -> str:
    is_all = row["kind"] == "all"
    cells = [
        escape(str(row["kind"])),
        row["n"],
        row["clusters"],
        _format_difference(row),
        f"{row['second_only']} : {row['first_only']}",
        f"{row['p']:.2g}",
        "" if is_all else f"{row['p_holm']:.2g}",
        "-" if row["detectable"] is None else f"{100 * row['detectable']:.1f}",
    ]
    return f"<tr{' class=all' if is_all else ''}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _format_difference(row: Mapping[str, Any]) -> str:
    return f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f},\u00a0{100 * row['high']:+.1f}]"
