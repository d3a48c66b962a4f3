"""Expansion keeps the answer; flaws are found where they are planted and nowhere else."""

from __future__ import annotations

from random import Random

import pytest

from turnwise.core.errors import ConfigError
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.projection import evaluate, parse, to_text
from turnwise_synthesis.shaper.expand import (
    STRATEGIES,
    Outcome,
    build_seed,
    check,
    expand,
    grow,
    grow_many,
    list_unique_questions,
)
from turnwise_synthesis.shaper.flaws import Flaw, find_flaws, find_near_constants, list_constants, measure_depth, prune
from turnwise_synthesis.shaper.graph import FactGraph, Statement
from turnwise_synthesis.shaper.scene import Scene, build_world_scene
from turnwise_synthesis.shaper.verdict import MAX_RELATIONS, count_searches, judge_expansion

WORLD = build_world_scene("train", 1, num_entities=80, num_words=48, num_distractors=0)


def build_scene(*facts: str) -> Scene:
    """A scene of facts "subject relation object" with one passage each."""
    triples = [fact.split() for fact in facts]
    statements = tuple(
        Statement(relation=relation, subject=subject, object=target, passages=(f"p{number}",))
        for number, (subject, relation, target) in enumerate(triples)
    )
    names = dict.fromkeys(name for subject, _, target in triples for name in (subject, target))
    passages = tuple(
        Passage(f"p{number}", "", f"The {relation} of {subject} is {target}.")
        for number, (subject, relation, target) in enumerate(triples)
    )
    return Scene(graph=FactGraph(types=dict.fromkeys(names, "thing"), statements=statements), passages=passages)


# Book is set in Port, whose mayor is Orin; Song is set in Port too, but by another author.
SMALL = build_scene(
    "Book setting Port",
    "Book author Mira",
    "Port mayor Orin",
    "Song setting Port",
    "Song author Vale",
    "Orin home Hill",
)


def flaws(text: str, answer: str, scene: Scene = SMALL) -> set[Flaw]:
    """Kinds of flaws, where one search returns one passage."""
    return {found.flaw for found in find_flaws(parse(text), answer, scene, top_k=1)}


def test_a_planted_fact_between_constants_is_found() -> None:
    text = "(author^-1([Mira]) & setting^-1(([Port] & mayor^-1([Orin]))))"
    assert evaluate(parse(text), SMALL.graph) == {"Book"}
    assert Flaw.CONSTANT_EDGE in flaws(text, "Book")
    assert Flaw.CONSTANT_EDGE not in flaws("(author^-1([Mira]) & setting^-1(mayor^-1([Orin])))", "Book")


def test_a_planted_needless_condition_is_found() -> None:
    assert Flaw.UNNEEDED_PART in flaws("(author^-1([Mira]) & setting^-1([Port]))", "Book")  # Mira is enough
    assert Flaw.UNNEEDED_PART in flaws(
        "(author^-1([Mira]) | author^-1(home([Hill])))", "Book"
    )  # and so without the union
    two = build_scene("A r X", "A s Y", "B r X", "C s Y")
    assert Flaw.UNNEEDED_PART not in flaws("(r^-1([X]) & s^-1([Y]))", "A", two)  # X leaves A, B and Y leaves A, C


def test_a_planted_shortcut_by_distance_is_found() -> None:
    # Depth 2 through Orin; Mira stands beside the answer.
    assert Flaw.NEAR_CONSTANT in flaws("(setting^-1(mayor^-1([Orin])) & author^-1([Mira]))", "Book")
    assert find_near_constants(parse("setting^-1(mayor^-1(home^-1([Hill])))"), "Book", SMALL) == []
    # The question takes three facts from Orin to Book, the graph only two.
    roundabout = build_scene("Book setting Port", "Port mayor Orin", "Port twin Bay", "Bay chief Orin")
    [found] = find_near_constants(parse("setting^-1(twin^-1(chief^-1([Orin])))"), "Book", roundabout)
    assert found.where == "Orin"


def test_a_planted_shortcut_by_one_search_is_found() -> None:
    assert Flaw.ONE_SEARCH in flaws("author^-1([Mira])", "Book")
    leak = Scene(graph=SMALL.graph, passages=(*SMALL.passages, Passage("x", "", "Hill Hill Hill Book")))
    assert Flaw.ONE_SEARCH in flaws("(setting^-1(mayor^-1(home^-1([Hill]))))".strip("()") + ")))", "Book", leak)
    assert Flaw.ONE_SEARCH not in flaws("setting^-1(mayor^-1(home^-1([Hill])))", "Book", SMALL)


def test_pruning_drops_what_is_needless_and_keeps_the_answer() -> None:
    query = parse("(author^-1([Mira]) & setting^-1([Port]))")
    assert to_text(prune(query, SMALL.graph)) == "author^-1([Mira])"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_keeps_the_answer(strategy) -> None:
    made, outcomes = grow_many(WORLD.graph, Random(0), count=15, width=2, layers=2, strategy=strategy)
    assert len(made) == 15 == outcomes["made"]
    for answer, query in made:
        assert evaluate(query, WORLD.graph) == {answer}


def test_layers_have_no_redundancy_and_keep_constants_far_and_random_facts_do_not() -> None:
    made, _ = grow_many(WORLD.graph, Random(0), count=15, width=2, layers=2, strategy="layer")
    for answer, query in made:
        found = {each.flaw for each in find_flaws(query, answer, WORLD, top_k=3)}
        assert not found & {Flaw.CONSTANT_EDGE, Flaw.UNNEEDED_PART, Flaw.NEAR_CONSTANT}
        distances = WORLD.graph.distances(answer)
        assert all(depth == 3 <= distances[entity] for entity, depth in list_constants(query))
    loose, _ = grow_many(WORLD.graph, Random(0), count=15, width=2, layers=2, strategy="random")
    flawed = [q for a, q in loose if {each.flaw for each in find_flaws(q, a, WORLD, top_k=3)} & {Flaw.CONSTANT_EDGE}]
    assert len(flawed) > 5


def test_more_layers_take_more_searches() -> None:
    efforts = []
    for layers in (0, 1, 2):
        made, _ = grow_many(WORLD.graph, Random(1), count=12, width=1, layers=layers, strategy="layer")
        counts = [count_searches(query, answer, WORLD, top_k=3) for answer, query in made]
        efforts.append(sum(each for each in counts if each is not None) / len(counts))
        assert all(measure_depth(query) == layers + 1 for _, query in made)
    assert efforts[0] < efforts[1] < efforts[2]


def test_outcomes_have_names() -> None:
    ring = build_scene("A r B", "C r B", "B s D", "B s E")
    assert build_seed("A", ring.graph, Random(0), width=2).outcome is Outcome.NO_SEED  # A and C are alike
    lone = build_scene("A r B")
    attempt = grow("A", lone.graph, Random(0), width=1, layers=1, strategy="layer")
    assert (attempt.outcome, attempt.query) == (Outcome.NO_SUBQUESTION, None)
    assert check(parse("r^-1([B])"), "B", lone.graph, layers=0).outcome is Outcome.OTHER_ANSWER
    with pytest.raises(ConfigError, match=r"strategy='deep' is unknown; use one of layer, sequence, random"):
        expand(parse("r([A])"), "B", lone.graph, Random(0), "deep", 0)  # type: ignore[arg-type]


def test_unique_questions_have_no_needless_condition() -> None:
    found = [to_text(each) for each in list_unique_questions("Book", SMALL.graph, 2)]
    assert found == ["author^-1([Mira])"]  # with [Port] it would be needless


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("setting^-1([Port]", "it is no formal expression"),
        ("[Book]", "it has no relation"),
        ("paints^-1([Mira])", "unknown relation paints"),
        ("author^-1([Nobody])", "unknown entity Nobody"),
        ("setting^-1([Port])", "its answer is not Book"),
        ("(author^-1([Mira]) & author^-1(author([Book])))", "it names its answer Book"),
        ("author^-1([Mira])" + " " * 1000, "it has 1017 characters, more than 1000"),
        ("(" * 900, "it is no formal expression"),
        ("author(" * 30 + "[Mira]" + ")" * 30, f"it has 30 relations, more than {MAX_RELATIONS}"),
        ("", "it is no formal expression"),
    ],
)
def test_bad_expansions_are_named(text: str, problem: str) -> None:
    verdict = judge_expansion(text, parse("author^-1([Mira])"), "Book", SMALL, top_k=1)
    assert verdict.problem == problem
    assert set(verdict.parts.values()) == {0.0}


def test_a_good_expansion_and_the_same_question_again() -> None:
    before = parse("setting^-1(mayor^-1([Orin]))")
    scene = build_scene("Book setting Port", "Port mayor Orin", "Orin home Hill")
    good = judge_expansion("setting^-1(mayor^-1(home^-1([Hill])))", before, "Book", scene, top_k=1)
    assert good.parts == {"valid": 1, "not_redundant": 1, "no_shortcut": 1, "harder": 1, "success": 1}
    assert good.describe() == "good: 3 searches, 2 before"
    same = judge_expansion(to_text(before), before, "Book", scene, top_k=1)
    assert (same.parts["valid"], same.parts["harder"], same.parts["success"]) == (1, 0, 0)
    assert "not harder" in same.describe()
    padded = judge_expansion("(setting^-1(mayor^-1([Orin])) | setting([Hill]))", before, "Book", scene, top_k=1)
    assert (padded.parts["harder"], padded.parts["not_redundant"], padded.parts["success"]) == (1, 0, 0)
