"""Checks two parsed expressions that math-verify found equal again, by their values to many more digits.

math-verify compares numbers to 15 digits after the point, and decimals to 6, so that 1/2004! equals 1/2006!. Runs in
the worker's process: sympy is imported on first use.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from turnwise.core.errors import RewardError, boundary

_DIGITS = 120
_EXACT, _ROUNDED = 100, 6
"""Number of digits in which two numbers must agree: exact ones, and if one is a decimal number."""


def have_equal_values(gold: Any, answer: Any) -> bool:
    """Whether two sympy expressions have the same value; True also if they have no value to compare.

    Exact numbers agree in 100 digits, decimal numbers in 6. Expressions with variables are compared with fixed values
    for these, sets, tuples and matrices member by member, "x = 5" by its right side.
    """
    sympy: Any = importlib.import_module("sympy")
    with suppress(RewardError), boundary(RewardError, "computing a value"):
        return _agree(sympy, *_right_sides(sympy, gold, answer))
    return True


def _right_sides(sympy: Any, gold: Any, answer: Any) -> tuple[Any, Any]:
    """Return the expressions without a leading "x =", unless they are equations that say the same in another form."""
    sides = [expression.lhs for expression in (gold, answer) if isinstance(expression, sympy.Eq)]
    if len(set(sides)) > 1 or not all(isinstance(side, sympy.Symbol) for side in sides):
        return None, None
    one, other = (expression.rhs if isinstance(expression, sympy.Eq) else expression for expression in (gold, answer))
    return one, other


def _agree(sympy: Any, gold: Any, answer: Any) -> bool:
    one, other = _members(sympy, gold), _members(sympy, answer)
    if one is not None and other is not None:
        return len(one) != len(other) or all(_agree(sympy, *pair) for pair in zip(one, other, strict=True))
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return True
    if isinstance(gold, sympy.Symbol) or isinstance(answer, sympy.Symbol):  # a name, which may be a word
        return True
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for shift in (0, 1) if symbols else (0,):
        values = {symbol: sympy.Rational(7 + 2 * place + shift, 5) for place, symbol in enumerate(symbols)}
        if not _agree_as_numbers(sympy, gold.subs(values), answer.subs(values)):
            return False
    return True


def _members(sympy: Any, expression: Any) -> list[Any] | None:
    """Return the members of a collection, those of a set in the order of their values; None for anything else."""
    if isinstance(expression, sympy.FiniteSet):
        return sorted(expression.args, key=lambda member: sympy.default_sort_key(member.evalf()))
    if isinstance(expression, sympy.Tuple):
        return list(expression.args)
    if isinstance(expression, sympy.Interval):
        return [expression.start, expression.end]
    return list(expression) if isinstance(expression, sympy.MatrixBase) else None


def _agree_as_numbers(sympy: Any, gold: Any, answer: Any) -> bool:
    is_decimal = gold.has(sympy.Float) or answer.has(sympy.Float)
    one, other = (expression.doit().evalf(_DIGITS) for expression in (gold, answer))
    if not (one.is_finite and other.is_finite and one.is_number and other.is_number):
        return True
    apart, size = abs(one - other), max(abs(one), abs(other))
    if apart <= size * sympy.Float(10, _DIGITS) ** -(_ROUNDED if is_decimal else _EXACT) * 2:
        return True
    # Both may be 0, written so that evaluation to digits cannot show it: sqrt(2)*sqrt(2) - 2.
    tiny = not is_decimal and apart < sympy.Float(10, _DIGITS) ** -90
    return bool(tiny and sympy.simplify(gold - answer) == 0)
