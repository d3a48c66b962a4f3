"""Checks the named options of a method when it is built, before the first batch."""

from __future__ import annotations

import math
from collections.abc import Sequence


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(choices)}")


def check_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raise ValueError unless `value` is a finite number with `low <= value <= high`."""
    if not (isinstance(value, int | float) and math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{name} is {value!r}; it must be a finite number in [{low:g}, {high:g}]")
