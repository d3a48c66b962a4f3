"""The table of docs/architecture.md that says what runs through each contract."""

from __future__ import annotations

import re
from pathlib import Path

from document_rules import list_tables

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


def read_contract(file: str) -> tuple[str, str]:
    """What a file of `tests/contracts` runs, and what it does not, as the page says it."""
    return _read_row("contract", f"`{file}`")


def read_seam(start: str) -> str:
    """The implementations of a seam, whose first cell starts so."""
    return _read_row("seam", start)[1]


def _read_row(head: str, start: str) -> tuple[str, str]:
    """The other two cells of a row."""
    tables = [table for table in list_tables(PAGE.read_text(encoding="utf-8")) if table[0][0] == head]
    [row] = [row for table in tables for row in table[1:] if row[0].startswith(start)]
    return row[1], row[2]


def list_names(text: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([\w-]+)`", text)
