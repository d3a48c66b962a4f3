"""Pairs of a program's result and its test's expectation, each with the truth: whether a person who knows the problem
would call it right. For `judges.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

Text = tuple[str, str, bool]
Value = tuple[Any, Any, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One pair of a kind."""

    kind: str
    given: Any
    """The text printed, or the Python value that a call gave."""
    wanted: Any
    """The text or the JSON value of the test."""
    is_right: bool


def build_text_pairs(num_pairs: int, seed: int) -> list[Pair]:
    """Pairs of printed texts, of all kinds in turn."""
    return _build(TEXT_KINDS, num_pairs, seed)


def build_call_pairs(num_pairs: int, seed: int) -> list[Pair]:
    """Pairs of call results, of all kinds in turn."""
    return _build(CALL_KINDS, num_pairs, seed)


def _build(kinds: dict[str, Callable[[Random], tuple[Any, Any, bool]]], num_pairs: int, seed: int) -> list[Pair]:
    random = Random(seed)
    pairs = []
    for number in range(num_pairs):
        kind = list(kinds)[number % len(kinds)]
        given, wanted, is_right = kinds[kind](random)
        pairs.append(Pair(kind=kind, given=given, wanted=wanted, is_right=is_right))
    return pairs


# ------------------------------------------------------------------------------------------------ texts


def _grid(random: Random, low: int = 2) -> list[list[int]]:
    """Two to four lines, each with two to four different two-digit numbers in descending order."""
    width = random.randint(low, 4)
    return [sorted(random.sample(range(10, 100), width), reverse=True) for _ in range(random.randint(2, 4))]


def _lines(rows: list[list[int]], space: str = " ", end: str = "\n") -> str:
    return "".join(space.join(map(str, row)) + end for row in rows)


def _real(random: Random) -> float:
    return random.choice((-1, 1)) * random.uniform(1, 999)


def _same(random: Random) -> Text:
    text = _lines(_grid(random))
    return text, text, True


def _spaces(random: Random) -> Text:
    rows = _grid(random)
    return _lines(rows, end=random.choice((" \n", "\t\n", "\n "))) + "\n", _lines(rows).rstrip("\n"), True


def _carriage_returns(random: Random) -> Text:
    rows = _grid(random)
    return _lines(rows), _lines(rows, end="\r\n"), True


def _inner_spaces(random: Random) -> Text:
    rows = _grid(random)
    return _lines(rows, space="  "), _lines(rows), True


def _other_lines(random: Random) -> Text:
    rows = _grid(random)
    return " ".join(_lines(rows).split()), _lines(rows), True


def _last_digits(random: Random) -> Text:
    number = _real(random)
    return f"{number + random.uniform(-1, 1) * 1e-9!r}\n", f"{number:.12f}\n", True


def _relative_digits(random: Random) -> Text:
    number = _real(random) * 1e9
    return f"{number * (1 + 1e-9):.3f}\n", f"{number:.3f}\n", True


def _beside_words(random: Random) -> Text:
    number = _real(random)
    return f"Case 1: {number:.10f}\n", f"Case 1: {number:.6f}\n", True


def _whole_as_real(random: Random) -> Text:
    number = random.randint(-99, 10**9)
    return f"{number}.0\n", f"{number}\n", True


def _exponent(random: Random) -> Text:
    number = random.randint(1, 99)
    return f"{number}e-05\n", f"0.{number:05d}\n", True


def _next_number(random: Random) -> Text:
    rows = _grid(random)
    changed = [[*row[:-1], row[-1] + 1] if row is rows[-1] else row for row in rows]
    return _lines(changed), _lines(rows), False


def _next_large_number(random: Random) -> Text:
    number = random.randint(10**8, 10**18)
    return f"{number + random.choice((-1, 1))}\n", f"{number}\n", False


def _lost_zeros(random: Random) -> Text:
    word = "0" * random.randint(1, 3) + "1" + "".join(random.choices("01", k=5))
    return word.lstrip("0") + "\n", word + "\n", False


def _swapped_words(random: Random) -> Text:
    rows = _grid(random)
    return _lines([row[::-1] for row in rows]), _lines(rows), False


def _swapped_lines(random: Random) -> Text:
    rows = _grid(random)
    while rows[0] == rows[-1]:
        rows = _grid(random)
    return _lines([*rows[1:], rows[0]]), _lines(rows), False


def _lost_repeats(random: Random) -> Text:
    (row, *_) = _grid(random)
    return _lines([row]), _lines([[row[0], *row]]), False


def _lost_word(random: Random) -> Text:
    rows = _grid(random)
    return _lines([*rows[:-1], rows[-1][:-1]]), _lines(rows), False


def _more_words(random: Random) -> Text:
    rows = _grid(random)
    return _lines([*rows, rows[0]]), _lines(rows), False


def _rounded(random: Random) -> Text:
    number = random.uniform(1, 99)
    return f"{number + 4e-4:.6f}\n", f"{number:.6f}\n", False


def _divided(random: Random) -> Text:
    number = 2 * random.randint(10**16, 10**17) + 1
    return f"{number * 2 / 2}\n", f"{number}\n", False


def _fractional(random: Random) -> Text:
    number = random.randint(10**7, 10**9)
    return f"{number + random.choice((0.25, 0.5))}\n", f"{number}\n", False


def _letter_case(random: Random) -> Text:
    word = random.choice(("YES", "NO", "Possible", "aAbB"))
    return word.swapcase() + "\n", word + "\n", False


def _joined(random: Random) -> Text:
    first, second = random.sample(range(1, 10), 2)
    return f"{first}{second}\n", f"{first} {second}\n", False


def _characters_in_lines(random: Random) -> Text:
    first, second = random.sample(range(1, 10), 2)
    return f"{first}{second}\n", f"{first}\n{second}\n", False


def _lost_sign(random: Random) -> Text:
    number = random.randint(1, 10**6)
    return f"{number}\n", f"-{number}\n", False


def _no_number(random: Random) -> Text:
    return random.choice(("nan", "None", "inf", "")) + "\n", f"{_real(random):.6f}\n", False


def _underscored(random: Random) -> Text:
    number = random.randint(1000, 9999)
    return f"{number:_}.0\n", f"{number}.0\n", False


def _noise_after_whole(random: Random) -> Text:
    number = random.randint(10**11, 10**12)
    return f"{number}.0000{random.randint(1, 9)}\n", f"{number}\n", True


def _picture(random: Random) -> Text:
    rows = [" " * (3 - number) + "*" * (2 * number + 1) for number in range(random.randint(2, 4))]
    return "".join(f"{row.strip()}\n" for row in rows), "".join(f"{row}\n" for row in rows), False


TEXT_KINDS: dict[str, Callable[[Random], Text]] = {
    "the same text": _same,
    "spaces at the ends of lines": _spaces,
    "lines that end in CRLF": _carriage_returns,
    "two spaces for one": _inner_spaces,
    "all words on one line": _other_lines,
    "a real number to 1e-9": _last_digits,
    "a large real number, to a relative 1e-9": _relative_digits,
    "a real number with more digits, next to words": _beside_words,
    "3.0 for 3": _whole_as_real,
    "an exponent": _exponent,
    "the next small number": _next_number,
    "the next integer, of 9 to 19 digits": _next_large_number,
    "lost leading zeros": _lost_zeros,
    "the words of a line in another order": _swapped_words,
    "lines in another order": _swapped_lines,
    "a repeated word once": _lost_repeats,
    "the last word missing": _lost_word,
    "a line too many": _more_words,
    "a real number off by 4e-4": _rounded,
    "digits lost by a floating-point division": _divided,
    "half of an integer that is one too large, with 8 or 9 digits": _fractional,
    "the other case of letters": _letter_case,
    "two words joined": _joined,
    "two lines joined": _characters_in_lines,
    "the sign lost": _lost_sign,
    "no number for a number": _no_number,
    "an underscore between digits": _underscored,
    "a real number close to an integer of 12 digits": _noise_after_whole,
    "a picture without its spaces": _picture,
}


# ------------------------------------------------------------------------------------------------ results of calls


def _numbers(random: Random) -> list[int]:
    return random.sample(range(1, 100), random.randint(2, 5))


def _table(random: Random) -> list[list[int]]:
    return [_numbers(random) for _ in range(random.randint(2, 3))]


def _any_value(random: Random) -> Any:
    return random.choice((7, 10**30, "ab", True, None, 2.5, _numbers(random), _table(random), {"a": _numbers(random)}))


def _same_value(random: Random) -> Value:
    value = _any_value(random)
    return value, value, True


def _tuple(random: Random) -> Value:
    value = _numbers(random)
    return tuple(value), value, True


def _tuples(random: Random) -> Value:
    value = _table(random)
    return [tuple(row) for row in value], value, True


def _iterable(random: Random) -> Value:
    value = sorted(_numbers(random))
    return random.choice((deque(value), set(value), frozenset(value))), value, True


def _numpy(random: Random) -> Value:
    value = _numbers(random)
    return random.choice(
        ((np.int64(value[0]), value[0], True), (np.array(value), value, True), (np.bool_(True), True, True))
    )


def _close_value(random: Random) -> Value:
    value = [_real(random) for _ in range(3)]
    return [each * (1 + 1e-12) for each in value], value, True


def _wrapped(random: Random) -> Value:
    value = random.choice((_any_value(random), _numbers(random)))
    return value, [value], True


def _whole_keys(random: Random) -> Value:
    value = dict.fromkeys(_numbers(random), 1)
    return value, {str(key): each for key, each in value.items()}, True


def _float_for_whole(random: Random) -> Value:
    value = random.randint(-99, 10**6)
    return float(value), value, True


def _first_of_several(random: Random) -> Value:
    value = random.choice((_numbers(random), _table(random)))
    return value[0], value, False


def _next_value(random: Random) -> Value:
    value = random.randint(0, 10 ** random.choice((2, 18)))
    return value + 1, value, False


def _lost_digits(random: Random) -> Value:
    value = 2 * random.randint(10**16, 10**17) + 1
    return value * 2 / 2, value, False


def _other_order(random: Random) -> Value:
    value = random.choice((_numbers(random), _table(random)))
    return [*value[1:], value[0]], value, [*value[1:], value[0]] == value


def _shorter(random: Random) -> Value:
    value = _numbers(random)
    return value[:-1], value, False


def _text_of_number(random: Random) -> Value:
    value = random.randint(0, 999)
    return random.choice(((str(value), value, False), (value, str(value), False)))


def _number_for_truth(random: Random) -> Value:
    value = random.choice((True, False))
    return random.choice(((int(value), value, False), (value, int(value), False)))


def _nothing(random: Random) -> Value:
    return random.choice((None, [], "", 0)), random.choice(([0, 0], False, [None, None], "0")), False


def _nan(random: Random) -> Value:
    return float("nan"), _real(random), False


def _element_of_one(random: Random) -> Value:
    value = random.randint(0, 99)
    return value, [value], False


CALL_KINDS: dict[str, Callable[[Random], Value]] = {
    "the same value": _same_value,
    "a tuple for a list": _tuple,
    "tuples inside a list": _tuples,
    "a deque or a set, in the same order": _iterable,
    "a numpy number or array": _numpy,
    "floats, to a relative 1e-12": _close_value,
    "an output wrapped in a list": _wrapped,
    "integer keys": _whole_keys,
    "3.0 for 3": _float_for_whole,
    "the first of several elements": _first_of_several,
    "the next number": _next_value,
    "digits lost by a floating-point division": _lost_digits,
    "of order": _other_order,
    "the last element missing": _shorter,
    "a text for a number, a number for a text": _text_of_number,
    "1 for true, true for 1": _number_for_truth,
    "another empty value": _nothing,
    "NaN": _nan,
    "the element instead of a list that contains only it": _element_of_one,
}
