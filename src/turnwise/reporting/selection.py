"""Show which checkpoint a run's evaluations chose, and how much choosing it adds to its score.

`selection.json` of the run folder has the choice, and a line that describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from turnwise.core.errors import StoreError

CHOICE = "selection.json"


def read_selection(run: Path) -> str:
    """The line on the choice; "" for a run that chose none. Raises StoreError if the file is damaged."""
    return str(_read(run).get("text", ""))


def draw_selection(run: Path) -> str:
    """Draw the line, and the success of every evaluation on the tasks that choose and on those that report; "" for a
    run that chose none. Raises StoreError if the file is damaged."""
    choice = _read(run)
    if not choice:
        return ""
    rows = "".join(
        f"<tr{' class=all' if step == choice['step'] else ''}><td>{step}</td><td>{100 * chosen_by:.1f}</td>"
        f"<td>{100 * reported:.1f}</td></tr>"
        for step, chosen_by, reported in choice["table"]
    )
    head = "<th>step</th><th>tasks that choose, %</th><th>tasks that report, %</th>"
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    text = str(choice["text"])
    return f"<p>{escape(text[0].upper() + text[1:])}.</p>" + (table if choice["is_apart"] else "")


def _read(run: Path) -> Mapping[str, Any]:
    path = run / CHOICE
    try:
        table = json.loads(path.read_bytes())
        if not isinstance(table, dict):
            raise ValueError("it is no table")
        return table
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as cause:
        raise StoreError(f"cannot read {path} ({cause}); delete it to leave the choice out of the report") from cause
