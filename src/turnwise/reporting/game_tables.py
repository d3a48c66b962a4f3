"""Show what policies are worth at a game, given as plain data, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def policies_table(report: Mapping[str, Any]) -> Table:
    """One row per policy. `report` as `GameReport.to_json` gives it."""
    table = Table(title=f"{report['game']}, worth {report['value']:+.4f} to player 0 under perfect play")
    table.add_column("policy")
    for column in (
        "exploitability",
        "loses as player 0",
        "as player 1",
        "against itself",
        "earns against uniform",
        "against perfect",
        "wins against uniform",
        "against perfect",
        "best moves",
        "legal",
    ):
        table.add_column(column, justify="right")
    for row in report["rows"]:
        table.add_row(
            row["label"],
            f"{row['exploitability']:.4f}",
            *(f"{loss:.4f}" for loss in row["losses"]),
            f"{row['value']:+.4f}",
            *(f"{row[name]:+.3f}" for name in ("earns_uniform", "earns_perfect")),
            *(f"{row[name]:.3f}" for name in ("wins_uniform", "wins_perfect")),
            *("-" if row[name] is None else f"{row[name]:.4f}" for name in ("optimal", "legal")),
        )
    return table


def population_table(report: Mapping[str, Any]) -> Table:
    """What each checkpoint (row) earns against each (column), the mean over both seats."""
    table = Table(title=f"{report['game']}: what checkpoints earn against each other")
    table.add_column("step", justify="right")
    for step in report["steps"]:
        table.add_column(f"{step}", justify="right")
    for step, means in zip(report["steps"], report["earned"], strict=True):
        table.add_row(f"{step}", *(f"{mean:+.3f}" for mean in means))
    return table
