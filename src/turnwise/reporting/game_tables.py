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
            f"{row['wins_uniform']:.3f}",
            f"{row['wins_optimal']:.3f}",
            *("-" if row[name] is None else f"{row[name]:.4f}" for name in ("optimal", "legal")),
        )
    return table


def population_table(report: Mapping[str, Any]) -> Table:
    """The win rate of each checkpoint (row) against each (column), over both seats, a draw as half a win."""
    table = Table(title=f"{report['game']}: win rates of checkpoints against each other")
    table.add_column("step", justify="right")
    for step in report["steps"]:
        table.add_column(f"{step}", justify="right")
    for step, rates in zip(report["steps"], report["win_rates"], strict=True):
        table.add_row(f"{step}", *(f"{rate:.3f}" for rate in rates))
    return table
