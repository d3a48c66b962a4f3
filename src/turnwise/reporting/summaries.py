"""Read, order and describe the evaluation summaries of a run.

A summary is the plain data of `evaluations/NAME.summary.json`: name, label, step, and a row per kind of task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import StoreError

Summary = Mapping[str, Any]
Row = Mapping[str, Any]


def load_summaries(run: Path) -> list[dict[str, Any]]:
    """Load the evaluations a run made itself, by step, controls last; evaluations by `turnwise evaluate` are left out.

    Raises StoreError naming the file that cannot be read.
    """
    summaries = []
    for path in sorted((run / "evaluations").glob("heldout_*.summary.json")):
        try:
            summaries.append(json.loads(path.read_bytes()))
        except (OSError, ValueError) as cause:
            raise StoreError(f"cannot read {path} ({cause}); delete it and run `turnwise evaluate {run}`") from cause
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
    """Describe how long the replies were, which reward and parts of it they got, and how many trajectories recovered
    from a failed tool call.

    "" if the summary lacks these numbers or any row.
    """
    row = row_of(summary, "all")
    if row is None or "response_tokens" not in row:
        return ""
    text = f"{summary['label']}: {describe_samples(row)}{row['response_tokens']:.1f} sampled tokens per episode"
    if row.get("reward") is not None:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in row["parts"].items())
        text += f", mean reward {row['reward']:.3f}" + (f" ({parts})" if parts else "")
    if row["recovered"] is None:
        return f"{text}, no tool call failed" if row["tool_calls"] else f"{text}, no tool was called"
    return (
        f"{text}, {100 * row['recovered']:.1f}% of the {row['errored']} trajectories with a failed tool call recovered"
    )


def describe_samples(row: Mapping[str, Any]) -> str:
    """Describe how many attempts at how many tasks a row has, and how often one of k succeeds; "" for one attempt
    each."""
    episodes, passes = row.get("episodes", row["n"]), row.get("pass_at") or ()
    if episodes == row["n"]:
        return f"{row['invalid']} more could not be scored, " if row.get("invalid") else ""
    shares = "".join(
        f"pass@{each['k']} {_format_share(each)}{_format_fewer(each, row)}, " for each in passes if each["k"] > 1
    )
    invalid = f" ({row['invalid']} more could not be scored)" if row.get("invalid") else ""
    return f"{episodes} episodes on {row['n']} tasks{invalid}, {shares}{_format_choices(row)}"


def _format_choices(row: Mapping[str, Any]) -> str:
    """What choosing one of all attempts is worth, by vote and by each score, beside random scores."""
    chosen = row.get("chosen") or ()
    most = max((each["k"] for each in chosen), default=0)
    texts = []
    for each in chosen:
        if each["k"] == most:
            name = f"maj@{most}" if each["by"] == "vote" else f"best of {most} by {each['by']}"
            texts.append(
                f"{name} {_format_share(each)}{_format_fewer(each, row)} (random {100 * each['control']:.1f}%), "
            )
    return "".join(texts)


def describe_decision(decision: Mapping[str, Any]) -> str:
    """Say what an evaluation that stops when its answer is known found."""
    played = f"after {decision['results']:,} of {decision['available']:,} independent results"
    if decision["side"] is None:
        return f"not known {played}: success is near {decision['against']}, or the tasks are too few"
    error = f"wrong in at most {100 * decision['error']:g}% of cases"
    return f"success is {decision['side']} {decision['against']} ({error}), known {played}"


def _format_fewer(each: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The number of tasks that a pass@k covers, if some tasks have fewer than k scored samples."""
    return f" of the {each['n']} with {each['k']} scored samples" if each.get("n", row["n"]) != row["n"] else ""


def format_success(row: Mapping[str, Any]) -> str:
    """A row's success with its interval in percent, `37.2% [33.3, 41.2]`; "-" if it counts no task."""
    return _format_share({**row, "share": row["success"]}) if row["n"] else "-"


def _format_share(row: Mapping[str, Any]) -> str:
    return f"{100 * row['share']:.1f}% [{100 * row['low']:.1f},\u00a0{100 * row['high']:.1f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline:
    """A kind of task on which a policy became worse."""

    kind: str
    before: Row
    after: Row

    @property
    def is_sure(self) -> bool:
        """Whether the intervals do not overlap."""
        return bool(self.after["high"] < self.before["low"])

    def describe(self) -> str:
        """`twin 26.7% -> 0.0% of 15 tasks`."""
        share = f"{100 * self.before['success']:.1f}% \u2192 {100 * self.after['success']:.1f}%"
        return f"{self.kind} {share} of {self.after['n']} tasks"


def list_declines(summaries: Sequence[Summary]) -> list[Decline]:
    """Kinds of task of which the last evaluation solves fewer than the first: at least two tasks fewer, or one beyond
    what the intervals allow. The largest loss first, as a share of the tasks solved before; controls and "all" are left
    out."""
    plain = [summary for summary in summaries if not is_control(summary)]
    declines = []
    for kind in kinds_of(plain) if len(plain) > 1 else ():
        before, after = row_of(plain[0], kind), row_of(plain[-1], kind)
        if kind == "all" or before is None or after is None or not before["n"] or not after["n"]:
            continue
        decline = Decline(kind=kind, before=before, after=after)
        if (before["success"] - after["success"]) * after["n"] > 1.5 or decline.is_sure:
            declines.append(decline)
    return sorted(declines, key=lambda each: (each.after["success"] / each.before["success"], each.kind))


def describe_declines(summaries: Sequence[Summary]) -> str:
    """One line on what a policy became worse at; "" if nothing."""
    declines = list_declines(summaries)
    if not declines:
        return ""
    kinds = {kind for kind in kinds_of(summaries) if kind != "all"}
    unsure = " (few tasks each: some of it may be chance)" if not all(each.is_sure for each in declines) else ""
    texts = "; ".join(decline.describe() for decline in declines)
    first = next(summary["label"] for summary in summaries if not is_control(summary))
    return f"worse than {first} at {len(declines)} of {len(kinds)} kinds{unsure}: {texts}"


def describe_best(summaries: Sequence[Summary]) -> str:
    """One line if an earlier evaluation is better than the last one; else ""."""
    plain = [(summary, row) for summary in summaries if not is_control(summary) and (row := row_of(summary, "all"))]
    if len(plain) < 2:
        return ""
    best, row = max(plain, key=lambda each: (each[1]["success"], each[0]["step"]))
    last = plain[-1][1]
    if row["success"] <= last["success"]:
        return ""
    return (
        f"best held-out success is that of step {best['step']}: {format_success(row)}; after the last step it is "
        f"{format_success(last)}"
    )
