"""Inverted questions: uniqueness by count, no needless condition, hard to find and easy to check."""

from __future__ import annotations

from random import Random

import pytest

from turnwise.environments.search_qa.projection import Intersection, evaluate, parse, to_text
from turnwise_synthesis.browsecomp.invert import Outcome, Plan, find_needless, invert, invert_many, list_conditions
from turnwise_synthesis.browsecomp.measure import count_checks, is_recalled, measure_worth
from turnwise_synthesis.shaper.flaws import list_constants
from turnwise_synthesis.shaper.graph import FactGraph, Statement
from turnwise_synthesis.shaper.scene import build_world_scene

WORLD = build_world_scene("train", 5, num_entities=100, num_words=48, num_distractors=0)
TYPES = ("person", "place", "organisation", "work")


def build_graph(*facts: str) -> FactGraph:
    """A graph of facts "subject relation object"."""
    statements = tuple(
        Statement(relation=relation, subject=subject, object=target, passages=("p",))
        for subject, relation, target in (fact.split() for fact in facts)
    )
    return FactGraph(types={n: "thing" for s in statements for n in (s.subject, s.object)}, statements=statements)


@pytest.mark.parametrize("plan", [Plan(), Plan(distance=2), Plan(min_candidates=3), Plan(obfuscations=(), distance=1)])
def test_one_entity_is_left_and_every_condition_is_needed_and_vague(plan: Plan) -> None:
    made, outcomes = invert_many(WORLD.graph, Random(0), plan, count=25, kinds=TYPES)
    assert made
    assert outcomes["made"] == len(made)
    for each in made:
        assert each.query is not None
        assert evaluate(each.query, WORLD.graph) == {each.answer}
        for part in each.query.parts:  # by hand, without `find_needless`
            rest = [other for other in each.query.parts if other is not part]
            assert len(frozenset.intersection(*(evaluate(other, WORLD.graph) for other in rest))) > 1
        assert find_needless(each.query, WORLD.graph) == []
        counts = [len(evaluate(part, WORLD.graph)) for part in each.query.parts]
        assert tuple(counts) == each.candidates
        assert min(counts) >= plan.min_candidates
        assert 2 <= len(counts) <= plan.max_conditions
        distances = WORLD.graph.distances(each.answer)
        named = [entity for entity, _ in list_constants(each.query)]
        assert named
        if plan.distance == 2:
            assert all(distances[entity] >= 1 and entity != each.answer for entity in named)


def test_inversion_by_hand() -> None:
    graph = build_graph("A r X", "B r X", "A s Y", "C s Y")
    found = invert("A", graph, Random(0), Plan(obfuscations=()))
    assert found.outcome is Outcome.MADE
    assert found.query is not None
    assert {to_text(part) for part in found.query.parts} == {"r^-1([X])", "s^-1([Y])"}
    assert found.candidates == (2, 2)


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        (("A r X", "B r X", "A s Y", "B s Y"), Outcome.NOT_UNIQUE),  # A and B are twins
        (("A r X",), Outcome.ONE_CONDITION),
        (("A r X", "B r X"), Outcome.NO_CONDITIONS),
        (("A r A", "B r B"), Outcome.NO_CONDITIONS),  # facts about itself say nothing
    ],
)
def test_entities_without_an_inverted_question_have_a_named_outcome(facts: tuple[str, ...], outcome: Outcome) -> None:
    assert invert("A", build_graph(*facts), Random(0), Plan(obfuscations=())).outcome is outcome


def test_planted_needless_conditions_are_found() -> None:
    graph = build_graph("A r X", "B r X", "A s Y", "C s Y", "A t Z")
    query = parse("(r^-1([X]) & s^-1([Y]) & t^-1([Z]))")
    assert isinstance(query, Intersection)  # t alone is enough, and so are r and s: each can be left out by itself
    assert [to_text(part) for part in find_needless(query, graph)] == list(map(to_text, query.parts))


def test_far_conditions_name_no_neighbour() -> None:
    for entity in WORLD.graph.entities[:20]:
        near = {entity for entity, distance in WORLD.graph.distances(entity).items() if distance == 1}
        for condition in list_conditions(entity, WORLD.graph, Plan(distance=2, obfuscations=())):
            assert [depth for _, depth in list_constants(condition)] == [2]
        named = {e for c in list_conditions(entity, WORLD.graph, Plan(obfuscations=())) for e, _ in list_constants(c)}
        assert named <= near


def test_naming_neighbours_is_found_by_one_search_and_naming_their_neighbours_is_not() -> None:
    worth = {}
    for distance in (1, 2):
        made, _ = invert_many(WORLD.graph, Random(0), Plan(distance=distance), count=25, kinds=TYPES)
        worth[distance] = measure_worth([(each, WORLD) for each in made], top_k=5, recall_k=5)
        assert worth[distance].needless == 0
    assert worth[1].recall[0] > 0.8  # the planted leak: the name stands beside the answer
    assert worth[2].recall[0] < 0.3
    assert worth[2].find_searches > worth[2].check_searches  # type: ignore[operator]


def test_checking_a_wrong_answer_fails() -> None:
    made, _ = invert_many(WORLD.graph, Random(0), Plan(distance=2), count=10, kinds=TYPES)
    for each in made:
        wrong = type(each)(outcome=each.outcome, answer="Nobody Here", query=each.query, candidates=each.candidates)
        assert count_checks(wrong, WORLD, 5) is None
        assert not is_recalled(wrong, WORLD, 5)
