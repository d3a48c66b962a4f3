"""Our graders on generated pairs of known truth (`benchmarks/graders.py`): where they err is decided, and pinned."""

from __future__ import annotations

import importlib
import re
import string
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.rewards.answers import exact_match, f1
from turnwise.rewards.math_spelling import decide, spell
from turnwise.rewards.math_verifier import MathVerifier

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"

LEFT_BY_NUMBERS = {"zero of a version lost"}, {"number in words", "decimal comma"}
"""Kinds of different answers that the rule "numbers" takes for equal ones, and of equal ones that it takes for
different ones."""
LEFT_BY_MATH = {"repeated root", "capital of a variable"}, set[str]()


@pytest.fixture(scope="module")
def graders() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))  # a benchmark imports its neighbours
    try:
        return importlib.import_module("graders")
    finally:
        sys.path.remove(str(BENCHMARKS))


def squad_form(text: str) -> str:
    """SQuAD's published rule: lower case, punctuation out, articles out, spaces single; in that order."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def test_numbers_errs_in_the_kinds_that_are_decided(graders: ModuleType) -> None:
    pairs = graders.draw("exact_match, numbers", 150, 1)
    for score, unordered in ((exact_match, set[str]()), (f1, {"words in another order"})):
        paid, refused = graders.count_errors(pairs, [score(pair.answer, pair.golds) for pair in pairs])
        assert set(paid) == LEFT_BY_NUMBERS[0] | unordered
        assert set(refused) == LEFT_BY_NUMBERS[1]


def test_squad_is_squads_rule_but_for_answers_of_which_nothing_is_left(graders: ModuleType) -> None:
    pairs = graders.draw("exact_match, squad", 150, 2)
    differing = {
        pair.kind
        for pair in pairs
        if exact_match(pair.answer, pair.golds, "squad") != (squad_form(pair.answer) == squad_form(pair.golds[0]))
    }
    assert differing <= {"nothing, for a letter", "article, for a letter"}
    assert "article, for a letter" in differing


@given(st.text("aAthe 5.-'\u2019é"), st.text("aAthe 5.-'\u2019é"))
def test_squads_rule_on_any_text(one: str, other: str) -> None:
    forms = squad_form(one), squad_form(other)
    if all(forms):
        assert exact_match(one, [other], "squad") == (forms[0] == forms[1])


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_math_errs_in_the_kinds_that_are_decided(graders: ModuleType, every: int) -> None:
    pytest.importorskip("math_verify")
    one_of_each = graders.draw("math", 78, every)
    assert {pair.kind for pair in one_of_each} >= LEFT_BY_MATH[0]
    pairs = [pair for place, pair in enumerate(one_of_each) if place % every == 0 or pair.kind in LEFT_BY_MATH[0]]
    score = graders.build_ours(MathVerifier(num_workers=1))["math"]
    assert tuple(map(set, graders.count_errors(pairs, [score(pair) for pair in pairs]))) == LEFT_BY_MATH


def test_the_tables_count_by_hand(graders: ModuleType) -> None:
    pairs = [
        graders.Pair(kind=kind, answer="a", golds=("b",), is_right=is_right)
        for kind, is_right in (("sign", False), ("sign", False), ("case", True), ("case", True))
    ]
    paid, refused = graders.count_errors(pairs, [1.0, 0.5, 0.0, 1.0])
    assert (paid, refused) == ({"sign": 1}, {"case": 1})
    table = graders.render_kinds(["ours", "theirs"], pairs, {"ours": [0, 0, 1, 1], "theirs": [1, 1, 1, 0]})
    assert table.splitlines()[2:] == ["| different | sign | 2 |  | 2 |", "| equal | case | 2 |  | 1 |"]


@pytest.mark.parametrize("piece", ["1- ", "1+ 1", "$", "\\text{", "\\,", "1 ", "a ", "(", "**", "{,}", "\\frac{1}{1}+"])
def test_no_answer_keeps_the_reader_of_text_busy(piece: str) -> None:
    answer = spell(piece * (2_000 // len(piece)) + "!")
    assert decide(answer, "12 cm") is not True
    assert decide(answer, "5") is not True
