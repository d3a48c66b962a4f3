"""Bugs of one or two words, and decoys that only look like bugs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from turnwise_worlds.repair.programs import BOOLEANS, COMPARISONS, OPERATORS, Code, Function, Line, to_intent

KINDS = ("op", "cmp", "const", "bool", "variable", "swap")
"""A wrong operator, comparison, constant, `and` for `or`, a wrong variable, swapped operands."""
TRAINED_KINDS = KINDS[:4]
"""The kinds of bugs in the training split; the held-out split has all."""
NUMBERS = tuple(str(number) for number in range(1, 10))
"""The constants of programs."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "op": tuple(OPERATORS),
    "cmp": tuple(COMPARISONS),
    "bool": tuple(BOOLEANS),
    "const": NUMBERS,
}
_ONE_WAY = ("-", "//", *COMPARISONS, ",")
"""Tokens whose operands, or arguments, cannot be swapped without an effect."""


def plant_bug(function: Function, kind: str, random: Random) -> tuple[int, Function] | None:
    """Plant a bug. Returns the index of the changed line and the changed function; None if no line can have such a bug.

    Intents stay unchanged: they say what the line is meant to do. All other readings of a line are equally likely.
    """
    sites = [
        (index, code) for index, line in enumerate(function.lines) for code in _other_readings(function, index, kind)
    ]
    if not sites:
        return None
    chosen = random.choice(sorted({index for index, _ in sites}))
    code = random.choice([code for index, code in sites if index == chosen])
    return chosen, _with_line(function, chosen, replace(function.lines[chosen], code=code))


def _other_readings(function: Function, index: int, kind: str) -> list[Code]:
    """Return every code into which a bug of this kind can turn a line."""
    line = function.lines[index]
    code, start = line.code, 2 if line.code[1] == "=" else 1
    if kind == "swap":
        return [
            (*code[: at - 1], code[at + 1], code[at], code[at - 1], *code[at + 2 :])
            for at in range(start, len(code))
            if code[at] in _ONE_WAY and code[at - 1] != code[at + 1]
        ]
    choices = _defined_before(function, index) if kind == "variable" else _CHOICES[kind]
    return [
        (*code[:at], other, *code[at + 1 :])
        for at in range(start, len(code))
        if code[at] in choices
        for other in choices
        if other != code[at]
    ]


def _defined_before(function: Function, index: int) -> tuple[str, ...]:
    targets = (line.code[0] for line in function.lines[:index] if line.code[1] == "=" and not line.depth)
    return tuple(dict.fromkeys((*function.parameters, *targets)))


def stale_comment(function: Function, random: Random) -> tuple[int, Function] | None:
    """Return the index of a line and the function with a false intent on that line, changed by any kind.

    With `TRAINED_KINDS` alone, no program of the training split would have a line whose code and intent name different
    variables, so copying variables from the intent could not be distinguished from copying them from the code.
    """
    kind = random.choice(KINDS)
    planted = plant_bug(function, kind, random)
    if planted is None:
        return None
    index, changed = planted
    line = function.lines[index]
    return index, _with_line(function, index, replace(line, intent=to_intent(changed.lines[index].code)))


def unusual_code(function: Function, random: Random) -> Function:
    """Return the function with one line that computes the same in an unusual form: `c = ( a + b )`."""
    index = random.randrange(len(function.lines))
    line = function.lines[index]
    head, tail = (2, len(line.code)) if line.code[1] == "=" else (1, len(line.code) - (line.code[0] == "if"))
    code = (*line.code[:head], "(", *line.code[head:tail], ")", *line.code[tail:])
    return _with_line(function, index, replace(line, code=code))


def _with_line(function: Function, index: int, line: Line) -> Function:
    return replace(function, lines=(*function.lines[:index], line, *function.lines[index + 1 :]))
