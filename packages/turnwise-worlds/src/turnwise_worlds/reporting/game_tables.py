"""Show what policies are worth at a game, given as plain data: as tables in a terminal and in report.html."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.table import Table

from turnwise.core.errors import StoreError
from turnwise.reporting.installed import Reported, Section

MEASURED = "exploitability.json"
"""File in a run folder with the last measurement of `turnwise exploitability`."""

POLICY_COLUMNS = (
    "policy",
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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A table as text; numbers are aligned right, the first column left."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def list_tables(report: Mapping[str, Any]) -> list[Cells]:
    """One row per policy, then what each checkpoint earns against each. `report` as returned by
    `GameReport.to_json`."""
    policies = [
        [
            row["label"],
            f"{row['exploitability']:.4f}",
            *(f"{loss:.4f}" for loss in row["losses"]),
            f"{row['value']:+.4f}",
            *(f"{row[name]:+.3f}" for name in ("earns_uniform", "earns_perfect")),
            *(f"{row[name]:.3f}" for name in ("wins_uniform", "wins_perfect")),
            *("-" if row[name] is None else f"{row[name]:.4f}" for name in ("optimal", "legal")),
        ]
        for row in report["rows"]
    ]
    population = [
        [f"{step}", *(f"{mean:+.3f}" for mean in means)]
        for step, means in zip(report["steps"], report["earned"], strict=True)
    ]
    game = report["game"]
    return [
        Cells(
            title=f"{game}, worth {report['value']:+.4f} to player 0 under perfect play",
            columns=POLICY_COLUMNS,
            rows=policies,
        ),
        Cells(
            title=f"{game}: what checkpoints earn against each other, the mean over both seats",
            columns=["step", *(f"{step}" for step in report["steps"])],
            rows=population,
        ),
    ]


def build_table(cells: Cells) -> Table:
    """The table for the terminal."""
    table = Table(title=cells.title)
    for number, column in enumerate(cells.columns):
        table.add_column(column, justify="right" if number else "left")
    for row in cells.rows:
        table.add_row(*row)
    return table


def draw_games(reported: Reported) -> str:
    """The measurements of a run, for its report; "" if there are none.

    Raises StoreError naming the file if it is damaged."""
    path = reported.run.path / MEASURED
    if not path.exists():
        return ""
    try:
        tables = [cells for report in json.loads(path.read_bytes()) for cells in list_tables(report)]
    except (OSError, ValueError, KeyError, TypeError) as cause:
        remedy = f"run `turnwise exploitability {reported.run.path}` again"
        raise StoreError(f"cannot read {path} ({cause}); {remedy}") from cause
    return "".join(map(_draw_table, tables))


def _draw_table(cells: Cells) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in cells.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells.rows)
    return (
        f'<h3>{escape(cells.title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


GAMES = Section(title="At its games", draw=draw_games)
"""The section of report.html."""
