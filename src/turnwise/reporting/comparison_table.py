"""Show a comparison of two evaluations on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from turnwise.reporting.transcript import clean_for_terminal


def comparison_table(compared: Mapping[str, Any]) -> Table:
    """Tabulate success, difference and p-value per kind; `compared` is `Comparison.to_json()`."""
    table = Table(title="success and difference in points [95% interval], on the same tasks")
    heads = [clean_for_terminal(str(compared[side])).replace("[", "\\[") for side in ("first", "second")]
    table.add_column("tasks", no_wrap=True)
    for head in ("n", *heads, "difference", "better:worse", "p", "p (Holm)", "sees"):
        table.add_column(head, justify="right")
    for row in compared["rows"]:
        sees = "-" if row["detectable"] is None else f"{100 * row['detectable']:.1f}"
        cells = [
            f"{row['n']}" if row["clusters"] == row["n"] else f"{row['n']} in {row['clusters']}",
            *(_format_share(row, side) for side in ("first", "second")),
            f"{100 * row['difference']:+.1f} \\[{100 * row['low']:+.1f},\u00a0{100 * row['high']:+.1f}]",
            f"{row['second_only']}:{row['first_only']}",
            f"{row['p']:.3g}",
            "" if row["kind"] == "all" else f"{row['p_holm']:.3g}",
            sees,
        ]
        kind = clean_for_terminal(row["kind"]).replace("[", "\\[")
        table.add_row(kind, *cells, style="bold" if row["kind"] == "all" else None)
    return table


def comparison_lines(compared: Mapping[str, Any]) -> list[str]:
    """The verdict, what the tasks can see, and the notes."""
    total = compared["rows"][-1]
    lines = [compared["verdict"]]
    if total["power"] is not None:
        lines.append(
            f"a true difference of {100 * compared['aim']:g} points is found in {100 * total['power']:.0f}% of such "
            f"comparisons; 80% needs {total['tasks_needed']:,} tasks like these (test: {total['test']})"
        )
    return [clean_for_terminal(line) for line in (*lines, *(f"note: {note}" for note in compared["notes"]))]


def _format_share(row: Mapping[str, Any], side: str) -> str:
    low, high = row[f"{side}_low"], row[f"{side}_high"]
    return f"{100 * row[side]:.1f}% \\[{100 * low:.1f},\u00a0{100 * high:.1f}]"
