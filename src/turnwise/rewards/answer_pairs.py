"""Pairs of an answer and its gold answers with truth known by construction, on which graders are tried: short answers.

Every kind is one way in which the same answer is written differently, or in which a different one looks the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

Maker = Callable[[Random], tuple[str, str]]
"""An answer and a gold answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One case for a grader."""

    kind: str
    answer: str
    golds: tuple[str, ...]
    is_right: bool
    """Whether the answer means the same as a gold answer."""


def draw_pairs(kinds: tuple[Mapping[str, Maker], Mapping[str, Maker]], count: int, seed: int) -> list[Pair]:
    """`count` pairs, equally many of each kind up to one; `kinds` are the right ones and the wrong ones."""
    right, wrong = kinds
    names = [*right, *wrong]
    pairs = []
    for index in range(count):
        kind = names[index % len(names)]
        answer, gold = {**right, **wrong}[kind](Random(f"{seed}/{kind}/{index}"))
        pairs.append(Pair(kind=kind, answer=answer, golds=(gold,), is_right=kind in right))
    return pairs


_FIRST = ("Mira", "Orin", "Ada", "Björn", "Chloé", "Edda", "Tomás", "Lena", "Ivo", "Zoë")
_LAST = ("Tolen", "Vale", "Hauser", "Petit", "Årud", "Novák", "Sears", "Winter", "Okoro", "Lindh")
_PLACES = ("Port Vessa", "Zürich", "Sankt Veit", "São Tomé", "New Harbor", "Lower Ardun")


def name(random: Random) -> str:
    """A person or a place."""
    return random.choice([f"{random.choice(_FIRST)} {random.choice(_LAST)}", random.choice(_PLACES)])


def decimal(random: Random) -> str:
    """A decimal number that does not end in a zero."""
    return f"{random.randint(1, 99)}.{random.randint(0, 9)}{random.randint(1, 9)}"


def whole(random: Random, low: int = 11, high: int = 9_999) -> int:
    """A whole number."""
    return random.randint(low, high)


def _edit(edit: Callable[[str, Random], str], make: Callable[[Random], str] = name) -> Maker:
    """Pairs of an edited answer and the answer."""

    def maker(random: Random) -> tuple[str, str]:
        gold = make(random)
        return edit(gold, random), gold

    return maker


def _other(make: Callable[[Random], str]) -> Maker:
    """Pairs of two different answers of a sort."""

    def maker(random: Random) -> tuple[str, str]:
        gold = make(random)
        while (answer := make(random)).casefold() == gold.casefold():
            pass
        return answer, gold

    return maker


def _letter(random: Random) -> str:
    return random.choice("ABCD")


def _language(random: Random) -> str:
    return random.choice(["C++", "C#", "F#", "C"])


def _two(random: Random, low: int = 1, high: int = 9) -> tuple[int, int]:
    return random.randint(low, high), random.randint(low, high)


def _list_for_number(random: Random) -> tuple[str, str]:
    a, b = _two(random)
    return f"{a}{random.choice([', ', ' ', ',', ';', '-', '/', ':'])}{b}", f"{a}{b}"


def _grouped_list(random: Random) -> tuple[str, str]:
    a, b = whole(random, 10, 99), whole(random, 100, 999)
    return f"{a}, {b}", f"{a}{b}"


def _range(random: Random) -> tuple[str, str]:
    a = whole(random, 1500, 1900)
    return f"{a}\u2013{a + 30}", f"{a}-{a + 30}"


def _comparison(random: Random) -> tuple[str, str]:
    a = whole(random)
    return f"<{a}", f">{a}"


def _power(random: Random) -> tuple[str, str]:
    a = whole(random, 2, 9)
    return f"10^{a}", f"10{a}"


def _exponent(random: Random) -> tuple[str, str]:
    a = whole(random, 2, 9)
    return f"1e-{a}", f"1e{a}"


def _time(random: Random) -> tuple[str, str]:
    a, b = whole(random, 1, 12), whole(random, 10, 59)
    return f"{a}:{b}", f"{a}{b}"


def _fraction(random: Random) -> tuple[str, str]:
    a, b = _two(random)
    return f"{a}/{b}", f"{a}{b}"


def _version(random: Random) -> tuple[str, str]:
    a, b = _two(random)
    return f"{a}.{b}0", f"{a}.{b}"


def _dropped_words(random: Random) -> tuple[str, str]:
    gold = f"{random.choice(_FIRST)} {random.choice(_LAST)}"
    return gold.split()[0], gold


def _swapped(random: Random) -> tuple[str, str]:
    first, last = random.choice(_FIRST), random.choice(_LAST)
    return f"{last} {first}", f"{first} {last}"


RIGHT: dict[str, Maker] = {
    "same text": _edit(lambda text, _: text),
    "capitals": _edit(lambda text, _: text.upper()),
    "article before it": _edit(lambda text, random: f"{random.choice(['the', 'The', 'a'])} {text}"),
    "full stop behind it": _edit(lambda text, _: f"{text}."),
    "spaces and a new line": _edit(lambda text, _: f" {text.replace(' ', '  ')}\n"),
    "straight quotes": _edit(lambda text, _: f'"{text}"'),
    "typographic quotes": _edit(lambda text, _: f"\u201c{text}\u201d"),
    "typographic apostrophe": _edit(lambda text, _: text.replace("'", "\u2019"), lambda random: f"{name(random)}'s"),
    "accents as separate characters": _edit(lambda text, _: unicodedata.normalize("NFD", text)),
    "brackets": _edit(lambda text, _: f"({text})"),
    "letter of a choice": _edit(lambda text, random: random.choice(["({})", "{}.", "{})"]).format(text), _letter),
    "initials with points": _edit(lambda text, _: "".join(f"{c}." for c in text), lambda r: r.choice(["USA", "EU"])),
    "commas in a number": _edit(lambda text, _: f"{int(text):,}", lambda random: str(whole(random, 1_000, 9_999_999))),
    "dollar sign": _edit(lambda text, _: f"${text}", lambda random: str(whole(random))),
    "plus sign": _edit(lambda text, _: f"+{text}", decimal),
    "percent sign": _edit(lambda text, _: f"{text}%", decimal),
    "minus sign of typography": _edit(lambda text, _: "\u2212" + text[1:], lambda random: f"-{decimal(random)}"),
    "zeros behind the point": _edit(lambda text, _: f"{text}0", decimal),
    "whole number as a decimal": _edit(lambda text, _: f"{text}.0", lambda random: str(whole(random))),
    "no zero before the point": _edit(lambda text, _: text[1:], lambda random: f"0.{whole(random, 11, 99)}1"),
    "dash in a range": _range,
    "fraction as one character": lambda random: random.choice([("½", "1/2"), ("¾", "3/4"), ("2½", "2 1/2")]),
    "full-width digits": _edit(lambda text, _: "".join(chr(ord(c) + 0xFEE0) for c in text), lambda r: str(whole(r))),
    "number in words": lambda random: random.choice([("three", "3"), ("seven", "7"), ("ten", "10")]),
    "decimal comma": _edit(lambda text, _: text.replace(".", ","), decimal),
}
"""Answers with the same meaning as the gold answer."""

WRONG: dict[str, Maker] = {
    "another name": _other(name),
    "words too many": _edit(lambda text, random: f"{text} or {random.choice(_LAST)}son"),
    "a word missing": _dropped_words,
    "words in another order": _swapped,
    "nothing, for a letter": _edit(lambda _, random: random.choice(["", " ", ".", "..."]), _letter),
    "article, for a letter": _edit(lambda _, random: random.choice(["the", "an"]), lambda _: "A"),
    "another letter": _other(_letter),
    "another number": _other(lambda random: str(whole(random))),
    "sign lost": _edit(lambda text, _: text[1:], lambda random: f"-{whole(random)}"),
    "point lost": _edit(lambda text, _: text.replace(".", ""), decimal),
    "slash lost": _fraction,
    "list of digits, for a number": _list_for_number,
    "list of numbers, for a number": _grouped_list,
    "power mark lost": _power,
    "exponent's sign lost": _exponent,
    "time, for a number": _time,
    "other comparison": _comparison,
    "marks of a name lost": _other(_language),
    "other grade": _other(lambda random: f"{random.choice('AB')}{random.choice(['', '+', '-'])}"),
    "zeros of a code lost": _edit(lambda text, _: text.lstrip("0"), lambda random: f"00{whole(random)}"),
    "zero of a version lost": _version,
}
"""Answers with another meaning."""
