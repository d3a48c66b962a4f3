"""Miniature programs: two modules of short functions in which every line says in words what it is meant to do.

A function may call a later one of its module, `c = bal ( a , b )`: `c is bal of a with b`.

A line is a few words of Python, `c = a + b`, and its intent, `c is a plus b`. Either can be written from the other,
word by word, so that a line whose code is wrong can be rewritten from its intent.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

OPERATORS: Mapping[str, str] = {"+": "plus", "-": "minus", "*": "times", "//": "over"}
COMPARISONS: Mapping[str, str] = {"<": "below", "<=": "within", ">": "above", ">=": "reaches"}
BOOLEANS: Mapping[str, str] = {"and": "also", "or": "otherwise"}
CALL = {"(": "of", ",": "with"}
WORDS: Mapping[str, str] = {"=": "is", **OPERATORS, **COMPARISONS, **BOOLEANS, **CALL}
"""Words of code as spelled in an intent; any other word keeps its spelling."""
LABELS = "ABCDE"
"""Labels of a function's lines, which limit their number."""
_CODE = {word: code for code, word in WORDS.items()}

_COMPUTE: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Code = tuple[str, ...]
"""The words of a line: `("c", "=", "a", "+", "b")`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a function."""

    depth: int
    """0, or 1 below an `if`."""
    code: Code
    intent: str
    """The comment at its end, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of two numbers or three."""

    name: str
    parameters: tuple[str, ...]
    lines: tuple[Line, ...]


Modules = Mapping[str, tuple[Function, ...]]
"""The functions of each module, by name."""


def to_intent(code: Sequence[str]) -> str:
    """Return the intent of a line's code: `c is a plus b` for `c = a + b`."""
    return " ".join(WORDS.get(word, word) for word in code if word not in (":", ")"))


def to_code(intent: str) -> Code:
    """Return the code of an intent; the inverse of `to_intent`."""
    words = tuple(_CODE.get(word, word) for word in intent.split())
    if "(" in words:
        return (*words, ")")
    return (*words, ":") if words and words[0] == "if" else words


def find_callee(intent: str) -> str:
    """Return the function that a line with this intent calls; "" if it calls none."""
    before, of, _ = intent.partition(f" {CALL['(']} ")
    return before.split()[-1] if of else ""


def compute(
    function: Function, arguments: Sequence[int], callees: Mapping[str, Function] = MappingProxyType({})
) -> int:
    """Compute what the function returns; `callees` are the functions that it and they call, by name, without cycles.

    Raises ZeroDivisionError if the function does; supports only generated lines.
    """
    values = dict(zip(function.parameters, arguments, strict=True))
    taken = True
    for line in function.lines:
        if line.depth and not taken:
            continue
        words = tuple(word for word in line.code if word not in ("(", ")"))
        if words[0] == "if":
            taken = _holds(words[1:-1], values)
        elif words[0] == "return":
            return _term(words[1:], values, callees)
        else:
            values[words[0]] = _term(words[2:], values, callees)
    raise AssertionError(f"function {function.name} ends without a return")


def _holds(words: Code, values: Mapping[str, int]) -> bool:
    first = bool(_operate(words[:3], values))
    if len(words) == 3:
        return first
    second = bool(_operate(words[4:], values))
    return (first and second) if words[3] == "and" else (first or second)


def _term(words: Code, values: Mapping[str, int], callees: Mapping[str, Function]) -> int:
    if "," not in words:
        return _operate(words, values)
    name, left, _, right = words
    return compute(callees[name], (_value(left, values), _value(right, values)), callees)


def _operate(words: Code, values: Mapping[str, int]) -> int:
    left, symbol, right = words
    return _COMPUTE[symbol](_value(left, values), _value(right, values))


def _value(word: str, values: Mapping[str, int]) -> int:
    return int(word) if word.isdigit() else values[word]


def show_line(line: Line) -> str:
    """Show a line's intent and code: `c is a plus b | c = a + b`, the code with a dot below an `if`."""
    return f"{line.intent} | {'. ' * line.depth}{' '.join(line.code)}"


def to_source(functions: Sequence[Function]) -> str:
    """Return the Python source of a module."""
    return "\n".join(
        f"def {function.name}({', '.join(function.parameters)}):\n"
        + "".join(f"{'    ' * (1 + line.depth)}{' '.join(line.code)}  # {line.intent}\n" for line in function.lines)
        for function in functions
    )
