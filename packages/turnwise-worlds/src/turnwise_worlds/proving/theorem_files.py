"""Rows of a user's theorems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import DataError
from turnwise_worlds.proving.prover import Theorem

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_']*", re.ASCII)
LONGEST_STATEMENT = 10_000
"""Characters."""


def read_theorem(row: Mapping[str, Any]) -> Theorem:
    """Read a row: `statement`, and if wanted `name` and `imports`, a list of commands that stand before it.

    Raises DataError naming the column and what is wrong with it.
    """
    statement, name, imports = row.get("statement"), row.get("name", "t"), row.get("imports", [])
    if not isinstance(statement, str) or not statement.strip():
        raise DataError('"statement" must be a text, such as "(n : nat) : n + 0 = n"')
    if len(statement) > LONGEST_STATEMENT:
        raise DataError(f'"statement" has {len(statement)} characters; use at most {LONGEST_STATEMENT}')
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DataError(f'"name" must be letters, digits and underscores, not {str(name)[:40]!r}')
    if not isinstance(imports, list) or not all(isinstance(each, str) and each.strip() for each in imports):
        raise DataError('"imports" must be a list of commands, such as ["Require Import Lia."]')
    return Theorem(name=name, statement=" ".join(statement.split()), imports=tuple(map(str.strip, imports)))
