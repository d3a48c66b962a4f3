"""Canary strings: marks by which data for evaluation are found where they must not be, in training data.

Published sets of questions carry one in every row, as a sentence with "canary GUID" and a name (BIG-bench's
convention), as "canary string:", or in a column `canary` (BrowseComp's file). A row with either is not trained on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import DataError

CANARY = "canary"
"""The column."""
_MARK = re.compile(r"canary\s+(?:guid\b|string\s*[:=])[^\n]{0,80}", re.IGNORECASE)


def find_canary(row: Mapping[str, Any]) -> str | None:
    """Return the canary of a row: the text of its column `canary`, or the mark in any text within it; None if there is
    none."""
    value = row.get(CANARY)
    if isinstance(value, str) and value.strip():
        return value.strip()
    return _find(row)


def refuse_canary(row: Mapping[str, Any]) -> None:
    """Raise DataError naming the canary of a row that is to be trained on."""
    found = find_canary(row)
    if found is not None:
        raise DataError(
            f"the row has the canary {found[:120]!r}: it is for evaluation and must not be trained on; name the file "
            "in heldout_path, or leave the row out"
        )


def _find(value: object) -> str | None:
    if isinstance(value, str):
        match = _MARK.search(value)
        return match[0].strip() if match else None
    within = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return next((found for each in within if (found := _find(each)) is not None), None)
