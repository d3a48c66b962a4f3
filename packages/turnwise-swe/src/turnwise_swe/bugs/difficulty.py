"""How hard a bug is to find, measured without a model.

A **suspect** is a function that every failing test enters: the bug is to be sought among them. Up to 3 suspects make an
instance easy, up to 12 medium, more than that hard. If there is none (the bug is in a class or runs at import), the
functions that any failing test enters count instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EASY, MEDIUM = 3, 12


def measure_difficulty(fail_to_pass: Sequence[str], entered: Mapping[str, frozenset[str]], num_lines: int) -> str:
    """Returns `easy`, `medium` or `hard`, and the counts: suspects, failing tests, lines of the edited functions."""
    sets = [entered.get(test, frozenset()) for test in fail_to_pass]
    suspects = frozenset.intersection(*sets) or frozenset.union(*sets)
    word = "easy" if len(suspects) <= EASY else "medium" if len(suspects) <= MEDIUM else "hard"
    return f"{word}: {len(suspects)} suspects, {len(fail_to_pass)} failing, {num_lines} lines"
