"""Read, order and describe the evaluation summaries of a run.

A summary is the plain data of `evaluations/NAME.summary.json`: name, label, step, and a row per kind of task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import StoreError

Summary = Mapping[str, Any]
Row = Mapping[str, Any]


def load_summaries(run: Path) -> list[dict[str, Any]]:
    """Load the evaluations a run made itself, by step, controls last; those of `turnwise evaluate` are left out.

    Raises StoreError naming the file that cannot be read.
    """
    summaries = []
    for path in sorted((run / "evaluations").glob("heldout_*.summary.json")):
        try:
            summaries.append(json.loads(path.read_bytes()))
        except (OSError, ValueError) as cause:
            raise StoreError(f"{path} cannot be read ({cause}); delete it and run `turnwise evaluate {run}`") from cause
    return sorted(summaries, key=lambda summary: (summary["step"], is_control(summary), summary["name"]))


def is_control(summary: Summary) -> bool:
    """Whether the evaluation is a control: something, such as search, was taken away from the policy."""
    return re.fullmatch(r"heldout_\d+", summary["name"]) is None


def kinds_of(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every kind of task in any summary, in order of appearance, "all" last."""
    kinds = dict.fromkeys(str(row["kind"]) for summary in summaries for row in summary["rows"])
    return [kind for kind in kinds if kind != "all"] + (["all"] if "all" in kinds else [])


def row_of(summary: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """A summary's row of one kind; None if there is none."""
    return next((row for row in summary["rows"] if row["kind"] == kind), None)


def describe_behaviour(summary: Mapping[str, Any]) -> str:
    """Say how long the replies were and how many trajectories recovered from a failed tool call.

    "" if the summary lacks these numbers or any row.
    """
    row = row_of(summary, "all")
    if row is None or "response_tokens" not in row:
        return ""
    text = f"{summary['label']}: {describe_samples(row)}{row['response_tokens']:.1f} sampled tokens per episode"
    if row["recovered"] is None:
        return f"{text}, no tool call failed" if row["tool_calls"] else f"{text}, no tool was called"
    return (
        f"{text}, {100 * row['recovered']:.1f}% of the {row['errored']} trajectories with a failed tool call recovered"
    )


def describe_samples(row: Mapping[str, Any]) -> str:
    """Say how many attempts at how many tasks a row has, and how often one of k succeeds; "" where each has one."""
    episodes, passes = row.get("episodes", row["n"]), row.get("pass_at") or ()
    if episodes == row["n"]:
        return ""
    shares = "".join(f"pass@{each['k']} {_format_share(each)}, " for each in passes if each["k"] > 1)
    return f"{episodes} episodes on {row['n']} tasks, {shares}"


def format_success(row: Mapping[str, Any]) -> str:
    """A row's success with its interval in percent, `37.2% [33.3, 41.2]`; "-" if it counts no task."""
    return _format_share({**row, "share": row["success"]}) if row["n"] else "-"


def _format_share(row: Mapping[str, Any]) -> str:
    return f"{100 * row['share']:.1f}% [{100 * row['low']:.1f},\u00a0{100 * row['high']:.1f}]"
