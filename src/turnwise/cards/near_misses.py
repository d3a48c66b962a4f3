"""Answers that are nearly the gold answer, or the gold answer written otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

_NUMBER = re.compile(r"\d+(?!.*\d)")
"""The last whole number of a text."""
_PLAIN = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A perturbed gold answer."""

    kind: str
    answer: str
    is_right: bool | None
    """Whether it means the gold answer; None where graders may differ."""


def list_near_misses(gold: str, other: str, random: Random) -> Iterator[NearMiss]:
    """Perturb a gold answer; `other` is another task's gold answer that is a different one, empty if there is none.

    A kind that does not fit the answer is left out: a number has no capitals."""
    is_number, words = bool(_PLAIN.fullmatch(gold)), gold.split()
    has_word = any(len(word) > 3 and word.isalpha() for word in words)
    yield NearMiss(kind="nothing", answer="", is_right=False)
    yield NearMiss(kind="a negation", answer=f"not {gold}", is_right=False)
    if other:
        yield NearMiss(kind="another entity", answer=other, is_right=False)
        yield NearMiss(kind="two answers", answer=f"{gold} or {other}", is_right=False)
    if match := _NUMBER.search(gold):
        changed = f"{gold[: match.start()]}{int(match[0]) + 1}{gold[match.end() :]}"
        yield NearMiss(kind="off by one", answer=changed, is_right=False)
    if has_word:
        yield NearMiss(kind="an extra word", answer=f"{gold} Junior", is_right=False)
        place = random.choice([at for at, letter in enumerate(gold) if letter.isalpha()])
        letter = "x" if gold[place].casefold() != "x" else "y"
        yield NearMiss(kind="a letter changed", answer=gold[:place] + letter + gold[place + 1 :], is_right=False)
        yield NearMiss(kind="capitals", answer=gold.upper(), is_right=True)
        yield NearMiss(kind="an article", answer=f"the {gold}", is_right=True)
    if len(words) > 1 and has_word:
        yield NearMiss(kind="a word missing", answer=" ".join(words[:-1]), is_right=False)
    yield NearMiss(kind="spaces around", answer=f"  {gold} ", is_right=True)
    yield NearMiss(kind="a full stop", answer=f"{gold}.", is_right=True)
    if is_number:
        yield NearMiss(kind="a trailing unit", answer=f"{gold} metres", is_right=None)
        yield NearMiss(kind="as a decimal", answer=f"{gold}.0", is_right=None)
        if abs(int(gold)) >= 1000:
            yield NearMiss(kind="groups of digits", answer=f"{int(gold):,}", is_right=True)
