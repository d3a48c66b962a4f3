"""Show the outcome of an audit, given as plain data, as a table and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

MAX_BREACHES = 20
"""Maximum number of breaches shown per check; `--json` has all."""


def audit_table(report: Mapping[str, Any]) -> Table:
    """One row per check: what it proves, how much it checked and did not check, and the verdict."""
    table = Table(title=f"audit of {_escape_markup(report['run'])}, {report['steps']} finished steps")
    table.add_column("check", no_wrap=True)
    table.add_column("what it proves")
    table.add_column("checked", justify="right", no_wrap=True)
    table.add_column("not checked", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for check in report["checks"]:
        breaches, skipped = len(check["breaches"]), sum(check["not_checked"].values())
        verdict = (
            f"[red]{breaches} breach{'es' if breaches > 1 else ''}[/]"
            if breaches
            else "[green]holds[/]"
            if check["checked"]
            else "-"
        )
        checked = f"{check['checked']:,} {check['unit']}"
        table.add_row(check["name"], check["proves"], checked, f"{skipped:,}" if skipped else "", verdict)
    return table


def audit_lines(report: Mapping[str, Any]) -> list[str]:
    """The lines below the table: what was not checked and why, the log-probabilities, the breaches, and the verdict."""
    lines = []
    for check in report["checks"]:
        lines += [
            f"not checked ({check['name']}): {count:,} {reason}" for reason, count in check["not_checked"].items()
        ]
    facts = report["facts"]
    if "logprob_gap_max" in facts:
        lines.append(
            f"log-probabilities: {facts['logprob_share_checked']:.0%} of sampled tokens scored again, mean difference "
            f"{facts['logprob_gap_mean']:.2g}, largest {facts['logprob_gap_max']:.2g} nats "
            f"(bounds {facts['logprob_bound_mean']:g} and {facts['logprob_bound_max']:g})"
        )
    for check in report["checks"]:
        lines += check["breaches"][:MAX_BREACHES]
        if (more := len(check["breaches"]) - MAX_BREACHES) > 0:
            lines.append(f"[{check['name']}] and {more} more; --json lists all")
    total = sum(len(check["breaches"]) for check in report["checks"])
    lines.append("no breach found" if not total else f"{total} breaches found")
    return lines


def _escape_markup(text: object) -> str:
    return str(text).replace("[", "\\[")
