"""`benchmarks/judges.py`: a slice of its pairs, and the rules of others by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"
KNOWN = {
    "a real number close to an integer of 12 digits",
    "a picture without its spaces",
    "the element instead of a list that contains only it",
}
"""Kinds on which our judge is wrong, as packages/turnwise-worlds/docs/coding_judges.md says."""


@pytest.fixture(scope="module")
def judges() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))  # a benchmark imports its neighbours
    try:
        spec = importlib.util.spec_from_file_location("benchmark_judges", BENCHMARKS / "judges.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


@pytest.mark.parametrize("seed", [1, 2])
def test_our_judge_is_right_on_all_kinds_but_the_known_ones(judges: ModuleType, seed: int) -> None:
    wrong = set()
    for pairs, table in (
        (judges.build_text_pairs(290, seed), judges.TEXT_JUDGES),
        (judges.build_call_pairs(190, seed), judges.CALL_JUDGES),
    ):
        wrong |= {pair.kind for pair in pairs if judges.judge_safely(table["ours"], pair) != pair.is_right}
        for name in table.keys() - {"ours"}:
            assert any(judges.judge_safely(table[name], pair) != pair.is_right for pair in pairs)
    assert wrong == KNOWN


def test_the_rules_of_others_by_hand(judges: ModuleType) -> None:
    lines, sets, characters, first = (
        judges.judge_lines,
        judges.judge_sets_of_words,
        judges.judge_sets_of_characters,
        judges.judge_first,
    )
    assert lines("1 2.0\n3\n", "1.0 2\n3")
    assert not lines("1 2 3", "1 2\n3")
    assert lines("a \n b", "a\nb")
    assert sets("2 1\n3\n", "3\n1 2\n")
    assert sets("1 1 2", "2 1")
    assert sets("1.00001\n", "1\n")  # |1.00001 - 1| <= 1e-8 + 1e-5
    assert not sets("1.1\n", "1\n")
    assert characters("21", "1 2")  # the characters of one word, the words of one line
    assert not characters("21", "12")
    assert first([1], [[1], 2])
    assert first(1, [1, 2])
    assert first((1, 2), [1, 2])
    assert first([(1, 2)], [[[1, 2]]])
    assert first(None, [None, 1])
    assert not first(None, [1])


def test_pairs_are_a_function_of_their_seed(judges: ModuleType) -> None:
    assert judges.build_text_pairs(58, 3) == judges.build_text_pairs(58, 3)
    assert judges.build_text_pairs(58, 3) != judges.build_text_pairs(58, 4)
