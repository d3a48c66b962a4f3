"""Show evaluations of a run on other sets of tasks, and those of models behind an API on its tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from turnwise.core.errors import StoreError
from turnwise.reporting.summaries import Summary, format_success, is_control, row_of


def load_sets(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Load the evaluations on further sets that a run made itself, by set and step, "selection" left out. Raises
    StoreError naming the file that cannot be read."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((run / "evaluations").glob("heldout-*_*.summary.json")):
        match = re.fullmatch(r"heldout-(.+)_\d+\.summary\.json", path.name)
        if match and match[1] != "selection":
            found.setdefault(match[1], []).append(_load(path))
    return {name: sorted(each, key=lambda summary: summary["step"]) for name, each in found.items()}


def load_foreign_all(run: Path) -> list[dict[str, Any]]:
    """Load the evaluations of models behind an API, by name. Raises as `load_sets`."""
    return [_load(path) for path in sorted((run / "evaluations").glob("api*_*.summary.json"))]


def load_foreign(run: Path, name: str) -> dict[str, Any]:
    """Load one of them. Raises as `load_sets`."""
    return _load(run / "evaluations" / f"{name}.summary.json")


def _load(path: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads(path.read_bytes())
        return summary
    except (OSError, ValueError) as cause:
        raise StoreError(f"cannot read {path} ({cause}); delete it, and evaluate again") from cause


def describe_foreign(summary: Mapping[str, Any]) -> str:
    """Describe in one line what a model behind an API took, and what failed."""
    taken = summary["foreign"]
    text = f"{summary['label']}: {taken['requests']:,} replies"
    counted = taken["requests"] > taken["uncounted"]
    text += f", {taken['prompt_tokens']:,} tokens read and {taken['reply_tokens']:,} written" if counted else ""
    if taken["uncounted"]:
        text += f", {taken['uncounted']:,} replies without a count of tokens"
    text += f", cost {taken['cost']:.4f}" if taken["cost"] else ""
    row = row_of(summary, "all")
    if row is None or not row["invalid"]:
        return f"{text}; every attempt was scored"
    failures = "; ".join(f"{count} times {cause}" for cause, count in taken["failures"].items())
    least = 100 * row["success"] * row["episodes"] / (row["episodes"] + row["invalid"])
    return (
        f"{text}; {row['invalid']} attempts were not scored, {least:.1f}% succeed if they count as failures: {failures}"
    )


def draw_sets(run: Path) -> str:
    """Draw success on further sets, one row each and one column per step; "" where there are none."""
    sets = load_sets(run)
    if not sets:
        return ""
    steps = sorted({summary["step"] for summaries in sets.values() for summary in summaries})
    head = "".join(f"<th>step {step}</th>" for step in steps)
    body = []
    for name, summaries in sets.items():
        rows = {summary["step"]: row_of(summary, "all") for summary in summaries}
        cells = "".join(f"<td>{_draw_success(rows.get(step))}</td>" for step in steps)
        count = max(row["n"] for row in rows.values() if row is not None)
        body.append(f"<tr><td>{escape(name)}</td><td>{count}</td>{cells}</tr>")
    return _draw_table(f"<th>set</th><th>n</th>{head}", body)


def draw_foreign(run: Path, own: Sequence[Summary]) -> str:
    """Draw the run's last evaluation beside those of models behind an API; "" where there are none."""
    foreign = load_foreign_all(run)
    if not foreign:
        return ""
    body = []
    plain = [summary for summary in own if not is_control(summary)]
    for summary in [*plain[-1:], *foreign]:
        row = row_of(summary, "all")
        if row is None:
            continue
        taken = summary.get("foreign", {})
        tokens = [f"{taken[name]:,}" if taken else "-" for name in ("prompt_tokens", "reply_tokens")]
        cells = (str(row["n"]), _draw_success(row), f"{row['tool_calls']:.2f}", str(row["invalid"]), *tokens)
        cost = f"{taken['cost']:.4f}" if taken.get("cost") else "-"
        label = summary["label"] if taken else f"this run, {summary['label']}"
        body.append(
            f"<tr><td>{escape(str(label))}</td>" + "".join(f"<td>{each}</td>" for each in (*cells, cost)) + "</tr>"
        )
    names = ("who played", "n", "success", "calls", "not scored", "tokens read", "tokens written", "cost")
    lines = "".join(f"<p>{escape(describe_foreign(summary))}.</p>" for summary in foreign)
    return _draw_table("".join(f"<th>{name}</th>" for name in names), body) + lines


def _draw_success(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    share, _, interval = format_success(row).partition(" ")
    return f"{share} <small>{interval}</small>"


def _draw_table(head: str, body: Sequence[str]) -> str:
    rows = "".join(body)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
