"""Draw the badcases of evaluations: how often each fault happens, before and after, and the attempts behind it.

Reads `evaluations/NAME.badcases.json`, which `turnwise badcases` writes, and the trajectories beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table

from turnwise.core.errors import StoreError
from turnwise.pictures.store import open_pictures
from turnwise.reporting.examples import Batch, draw_episode
from turnwise.reporting.pictures import PictureDrawer
from turnwise.reporting.style import NO_NETWORK, STYLE
from turnwise.reporting.voices import Row, group_episodes
from turnwise.store.rows import id_from_json
from turnwise.store.run_folder import RunFolder, write_bytes_atomic
from turnwise.store.trajectories import load_arrays, load_rows

FILE, PAGE = ".badcases.json", "badcases.html"
FEW, MANY = 3, 40
"""Attempts of a fault in one evaluation that the report shows, and that the page of its own shows."""
NOTE = "here it goes wrong"
DIVERGED = "here it leaves what would have succeeded"

Badcases = Mapping[str, Any]
"""The table of one evaluation, as `badcases.table.build_table` writes it."""


def load_badcases(run: Path) -> list[dict[str, Any]]:
    """Load the tables that a run has, by step and name. Raises StoreError naming a file that cannot be read."""
    tables = []
    for path in sorted((run / "evaluations").glob(f"*{FILE}")):
        try:
            tables.append(json.loads(path.read_bytes()))
        except (OSError, ValueError) as cause:
            raise StoreError(f"cannot read {path} ({cause}); delete it and run `turnwise badcases {run}`") from cause
    return sorted(tables, key=lambda table: (table["step"], table["evaluation"]))


def list_faults(tables: Sequence[Badcases]) -> list[tuple[str, str]]:
    """Return the faults of all tables and what each means: those of the first table by falling count, then others."""
    return list({fault["name"]: fault["about"] for table in tables for fault in table["faults"]}.items())


def find_fault_row(table: Badcases, name: str) -> Mapping[str, Any] | None:
    """Return a table's row of a fault; None if it never happened."""
    return next((fault for fault in table["faults"] if fault["name"] == name), None)


def format_fault(table: Badcases, fault: Mapping[str, Any] | None) -> str:
    """`12 of 600: 2.0% [1.1, 3.5]`; "0 of 600" for a fault that never happened."""
    if fault is None:
        return f"0 of {table['episodes']}"
    shares = [100 * fault[key] for key in ("share", "low", "high")]
    return f"{fault['count']} of {table['episodes']}: {shares[0]:.1f}% [{shares[1]:.1f}, {shares[2]:.1f}]"


def badcases_table(tables: Sequence[Badcases]) -> Table:
    """One row per fault, one column per evaluation."""
    shown = Table(title="what failed attempts did: number and share of all attempts [95% interval]")
    shown.add_column("fault")
    for table in tables:
        shown.add_column(f"{table['label']}".replace("[", "\\["), justify="right")
    for name, _ in list_faults(tables):
        cells = [format_fault(table, find_fault_row(table, name)).replace("[", "\\[") for table in tables]
        shown.add_row(name.replace("[", "\\["), *cells)
    shown.add_row("all failed", *[f"{table['failed']} of {table['episodes']}" for table in tables], style="bold")
    return shown


def describe_methods(tables: Sequence[Badcases]) -> list[str]:
    """Say for every evaluation how the divergences were found, one line each."""
    return [f"{table['label']}: {text}" for table in tables for text in table["methods"]]


def draw_badcases(run: Path, tables: Sequence[Badcases], *, most: int = FEW) -> str:
    """Draw the section of the report: the table, then for every evaluation and fault up to `most` attempts, each folded
    under one line. "" without a table."""
    if not tables:
        return ""
    head = "".join(f"<th>{escape(table['label'])}</th>" for table in tables)
    rows = "".join(_draw_row(name, about, tables) for name, about in list_faults(tables))
    total = "".join(f"<td>{table['failed']} of {table['episodes']}</td>" for table in tables)
    methods = "".join(f"<li>{escape(text)}</li>" for text in describe_methods(tables))
    intro = (
        "<p>What the attempts that failed did: number and share of all attempts with its 95% interval. A fault's name "
        "leads to the attempts behind it; each unfolds with a click.</p>"
    )
    return (
        f'{intro}<div class="scroll"><table><thead><tr><th>fault</th>{head}</tr></thead><tbody>{rows}'
        f'<tr class="all"><td>all failed</td>{total}</tr></tbody></table></div>'
        f'<p class="dim">Where an attempt first leaves what would have succeeded:</p><ul class="dim">{methods}</ul>'
        + "".join(_draw_evaluation(run, table, most) for table in tables)
    )


def write_badcases_page(run: RunFolder) -> Path:
    """Write `badcases.html` into the run folder, atomically, with up to `MANY` attempts of each fault; returns its
    path. Raises StoreError if the run has no table, or a file is damaged."""
    tables = load_badcases(run.path)
    if not tables:
        raise StoreError(f"{run.path} has no table of badcases; run `turnwise badcases {run.path}` first")
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{NO_NETWORK}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Badcases of {escape(run.path.name)}</title><style>{STYLE}</style></head>"
        f"<body><main><h1>Badcases of {escape(run.path.name)}</h1>{draw_badcases(run.path, tables, most=MANY)}"
        "</main></body></html>\n"
    )
    path = run.path / PAGE
    write_bytes_atomic(path, page.encode("utf-8", "replace"))
    return path


def _draw_row(name: str, about: str, tables: Sequence[Badcases]) -> str:
    cells = []
    for table in tables:
        fault = find_fault_row(table, name)
        text = escape(format_fault(table, fault))
        cells.append(f'<td><a href="#{_anchor(table, name)}">{text}</a></td>' if fault else f"<td>{text}</td>")
    return f"<tr><td>{escape(name)}<br><small>{escape(about)}</small></td>{''.join(cells)}</tr>"


def _draw_evaluation(run: Path, table: Badcases, most: int) -> str:
    folder, name = run / "evaluations", table["evaluation"]
    batch = Batch(
        label=table["label"],
        rows=load_rows(folder, name),
        arrays=load_arrays(folder, name),
        drawer=PictureDrawer(open_pictures(run)),
    )
    episodes = {str(id_from_json(row)): episode for episode in group_episodes(batch.rows) for row in episode}
    parts = []
    for fault in table["faults"]:
        chosen = [badcase for badcase in table["badcases"] if badcase["name"] == fault["name"]]
        drawn = "".join(_draw_badcase(badcase, episodes, batch) for badcase in chosen[:most])
        more = ""
        if len(chosen) > most:
            where = f"; up to {MANY} of each are in {PAGE} (turnwise badcases --page)" if most < MANY else ""
            more = f'<p class="dim">The first {most} of {len(chosen)}{where}.</p>'
        kinds = ", ".join(f"{kind} {count}" for kind, count in fault["kinds"].items())
        parts.append(
            f'<h4 id="{_anchor(table, fault["name"])}">{escape(table["label"])}, {escape(fault["name"])}: '
            f"{fault['count']} ({escape(kinds)})</h4>{drawn}{more}"
        )
    return "".join(parts)


def _draw_badcase(badcase: Mapping[str, Any], episodes: Mapping[str, Sequence[Row]], batch: Batch) -> str:
    episode = episodes.get(badcase["trajectory"])
    if episode is None:
        raise StoreError(
            f"trajectory {badcase['trajectory']} is not in evaluation {batch.label!r}; run `turnwise badcases` again"
        )
    line = f"{badcase['trajectory']} · {badcase['detail']}"
    facts = [f"task {badcase['task']}"]
    if badcase["diverges"] is not None:
        values = ", ".join("-" if value is None else f"{value:g}" for value in badcase["values"])
        facts.append(
            f"by {badcase['method']}: turn {badcase['diverges']}" + (f" (before each turn: {values})" if values else "")
        )
    if badcase["lost"] is not None:
        facts.append(f"success out of reach after turn {badcase['lost']}")
    if badcase["why_not"]:
        facts.append(badcase["why_not"])
    rows = [_add_notes(row, badcase) if str(id_from_json(row)) == badcase["trajectory"] else row for row in episode]
    items = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    return (
        f"<details><summary>{escape(line)}</summary><ul class=facts>{items}</ul>{draw_episode(rows, batch)}</details>"
    )


def _add_notes(row: Row, badcase: Mapping[str, Any]) -> Row:
    """Return the row with a note at the turn that goes wrong and at the one that diverges."""
    turns = [dict(turn) for turn in row["turns"]]
    for at, text in ((badcase["diverges"], DIVERGED), (badcase["turn"], NOTE)):
        if at is not None and at < len(turns):
            turns[at]["note"] = "; ".join(filter(None, [turns[at].get("note"), text]))
    return {**row, "turns": turns}


def _anchor(table: Badcases, name: str) -> str:
    return "badcase-" + re.sub(r"\W+", "-", f"{table['evaluation']} {name}")
