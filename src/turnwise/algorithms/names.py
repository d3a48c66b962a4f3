"""Finds methods by the names that people write: the table's own, or a paper's, in any case and punctuation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Protocol, TypeVar


class Named(Protocol):
    """A row of a table of methods."""

    @property
    def name(self) -> str:
        """Canonical name: the key in the table, and the name that a run stores."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names, spelled as in the papers."""


Row = TypeVar("Row", bound=Named)


def collect_rows(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the rows by canonical name, in order. Raises ValueError when two rows share a name or an alias."""
    table: dict[str, Row] = {}
    owners: dict[str, str] = {}
    for row in rows:
        for spelling in {simplify(spelling) for spelling in (row.name, *row.aliases)}:
            if spelling in owners:
                raise ValueError(f"{spelling!r} names {owners[spelling]!r} and {row.name!r}; rename one of them")
            owners[spelling] = row.name
        table[row.name] = row
    return table


def find_row(kind: str, name: str, table: Mapping[str, Row]) -> Row:
    """Find the row with that name or alias; case and punctuation do not matter ("Dr. GRPO" is "dr_grpo").

    Raises ValueError, with the nearest name and all names, if there is none; `kind` says what the table contains.
    """
    spellings = {simplify(spelling): row for row in table.values() for spelling in (row.name, *row.aliases)}
    if simplify(name) in spellings:
        return spellings[simplify(name)]
    nearest = get_close_matches(simplify(name), spellings, n=1)
    hint = f" (did you mean {spellings[nearest[0]].name!r}?)" if nearest else ""
    raise ValueError(f"unknown {kind} {name!r}{hint}; known: {', '.join(table)}")


def describe_unknown_option(method: str, option: str, known: Iterable[str]) -> str:
    """Return an error's text: `method` ("loss 'ppo'") has no such option, the nearest one, and all of them."""
    names = list(known)
    nearest = get_close_matches(option, names, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"{method} has no option {option!r}{hint}; its options: {', '.join(names) or 'none'}"


def simplify(name: str) -> str:
    """Reduce a name to lower-case letters and digits, with "+" and "@" spelled out: "REINFORCE++" and
    "reinforce_plus_plus" are one."""
    spelled = name.lower().replace("+", "plus").replace("@", "at")
    return "".join(character for character in spelled if character.isalnum())
