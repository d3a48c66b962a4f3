"""Faults planted in attempts at search questions are found: the small version of `benchmarks/badcases.py`."""

import asyncio
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from turnwise.badcases.naming import name_fault
from turnwise.core.types import ToolCall, ToolRecord, text_message
from turnwise.environments.search_qa.faults import NAMES, Need, find_need
from turnwise.environments.search_qa.projection import parse
from turnwise.testing.builders import make_task, make_trajectory, make_turn

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def badcases() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))  # a benchmark imports its neighbours
    return importlib.import_module("badcases")


def test_every_planted_fault_is_named_in_its_turn(badcases: ModuleType) -> None:
    found = asyncio.run(badcases.measure(badcases.build_planter("search"), (0, 1, 29)))
    assert found.wrong == []
    assert found.num_right == found.pairs.total() == 23 - found.succeeded
    planted = {planted for planted, _ in found.pairs}
    assert planted >= set(NAMES) | {"format", "limit", "tool failure", "gave up", "repeated itself"}
    # The results of a wrong search may say what was needed, which brings the oracle nearer.
    assert set(found.elsewhere) <= {"wrong relation", "limit"}


def test_what_is_needed_next_follows_from_the_facts() -> None:
    query = parse("birthplace(author([Blue Lantern]))")
    author = ("author", "Blue Lantern", "Mira Tolen")
    assert find_need(query, []) == (set(), Need("author", "Blue Lantern"))
    assert find_need(query, [author]) == (set(), Need("birthplace", "Mira Tolen"))
    assert find_need(query, [author, ("birthplace", "Mira Tolen", "Port Vessa")]) == ({"Port Vessa"}, None)
    either = parse("mentor(([Ada] | [Bo]))")
    assert find_need(either, [("mentor", "Bo", "Cy")]) == ({"Cy"}, None)
    both = parse("(author^-1([Ada]) & setting^-1([Port]))")
    facts = [("author", "Book", "Ada"), ("author", "Tale", "Ada")]
    assert find_need(both, facts) == (set(), Need("setting", "Port"))
    assert find_need(both, [*facts, ("setting", "Book", "Port")]) == ({"Book"}, None)


def test_questions_from_files_are_told_by_what_was_read(badcases: ModuleType) -> None:
    family = badcases.build_planter("search").family
    payload = {"question": "Who?", "query": None, "answers": ["Mira Tolen"], "kind": "own"}
    task = make_task("Who?", environment="search_qa", **payload)

    def attempt(text: str) -> str:
        call = ToolCall(id="c", name="search", arguments='{"query": "who"}')
        record = ToolRecord(call=call, observation=text, error=None, seconds=0.0)
        turns = [
            make_turn([1], [2], tool_records=(record,)),
            make_turn([1], [2], message=text_message("assistant", "<answer> Bo </answer>")),
        ]
        return name_fault(family, task, make_trajectory(*turns, reward=0.0)).name

    assert attempt("It was Mira Tolen.") == "read and not used"
    assert attempt("It was Mira Tolenson.") == "right passage not read"
