"""Graphs of facts, obfuscation with exact counts, and the two further solvers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import DataError
from turnwise.environments.search_qa.projection import (
    Constant,
    Intersection,
    Project,
    Projection,
    Union,
    evaluate,
    parse,
    to_text,
)
from turnwise_synthesis.shaper.graph import FactGraph, Statement, describe_entity
from turnwise_synthesis.shaper.graph_files import load_graph, write_graph
from turnwise_synthesis.shaper.obfuscation import OPERATORS, compute_fog, count_candidates, obfuscate
from turnwise_synthesis.shaper.scene import build_world_scene
from turnwise_synthesis.shaper.solver import find_members, is_member, search_members
from turnwise_synthesis.shaper.verdict import build_searcher
from turnwise_synthesis.shaper.wordings import write_compact, write_question

SCENE = build_world_scene("train", 5, num_entities=24, num_words=32, num_distractors=0)
TYPES = {"Ann Bo": "person", "Ada Cy": "person", "Red Key": "work", "Red Sea": "work", "1923": "year", "1927": "year"}
GRAPH = FactGraph(
    types=TYPES,
    statements=tuple(
        Statement(relation=relation, subject=subject, object=target, passages=("p",))
        for relation, subject, target in (
            ("author", "Red Key", "Ann Bo"),
            ("author", "Red Sea", "Ada Cy"),
            ("editor", "Red Sea", "Ann Bo"),
            ("year", "Red Key", "1923"),
            ("year", "Red Sea", "1927"),
        )
    ),
)


def queries() -> st.SearchStrategy[Projection]:
    """Queries over SCENE, obfuscated ones among them."""
    entities = st.sampled_from(SCENE.graph.entities).map(Constant)
    vague = st.sampled_from(["type^-1([work])", "decade^-1([1920s])", "initial^-1([M])", "first^-1([Mira])"]).map(parse)
    relations = st.sampled_from([*SCENE.graph.relations, "type"])
    return st.recursive(
        entities | vague,
        lambda inner: (
            st.builds(Project, relations, inner, st.booleans())
            | st.lists(inner, min_size=2, max_size=3).map(lambda parts: Intersection(tuple(parts)))
            | st.lists(inner, min_size=2, max_size=3).map(lambda parts: Union(tuple(parts)))
        ),
        max_leaves=6,
    )


@given(queries())
@settings(max_examples=60, deadline=None)
def test_both_solvers_agree_and_the_text_is_read_back(query: Projection) -> None:
    assert find_members(query, SCENE.graph) == evaluate(query, SCENE.graph)
    assert parse(to_text(query)) == query


@given(queries(), st.sampled_from(OPERATORS))
@settings(max_examples=60, deadline=None)
def test_an_obfuscated_query_leaves_all_candidates_and_maybe_more(query: Projection, operator: str) -> None:
    vaguer = obfuscate(query, operator, SCENE.graph)
    if vaguer is not None:
        assert evaluate(query, SCENE.graph) <= evaluate(vaguer, SCENE.graph)


@given(st.sampled_from([*SCENE.graph.relations]), queries(), queries(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_relation_of_a_union_is_the_union_of_the_relation(
    relation: str, first: Projection, second: Projection, inverse: bool
) -> None:
    whole = Project(relation, Union((first, second)), inverse)
    parts = Union((Project(relation, first, inverse), Project(relation, second, inverse)))
    assert evaluate(whole, SCENE.graph) == evaluate(parts, SCENE.graph)


def test_descriptions_of_names_and_years() -> None:
    assert describe_entity("Ann Bo", "person") == {"type": "person", "initial": "A", "first": "Ann"}
    assert describe_entity("1923", "year") == {"type": "year", "decade": "1920s"}
    assert describe_entity("Oslo", "place") == {"type": "place"}  # one word: its first word would be the name


@pytest.mark.parametrize(
    ("query", "operator", "text", "count"),
    [
        ("[Ann Bo]", "first", "first^-1([Ann])", 1),
        ("[Ann Bo]", "initial", "initial^-1([A])", 2),  # Ann Bo, Ada Cy
        ("[Ann Bo]", "type", "type^-1([person])", 2),
        ("[1923]", "decade", "decade^-1([1920s])", 2),  # 1923, 1927
        ("author^-1([Ann Bo])", "hypernym", "(author^-1([Ann Bo]) | editor^-1([Ann Bo]))", 2),  # Red Key, Red Sea
    ],
)
def test_every_operator_by_hand(query: str, operator: str, text: str, count: int) -> None:
    vaguer = obfuscate(parse(query), operator, GRAPH)
    assert vaguer is not None
    assert to_text(vaguer) == text
    assert count_candidates(vaguer, GRAPH) == count
    assert compute_fog(vaguer, GRAPH) == math.log2(count)


def test_operators_that_do_not_apply_and_unknown_ones() -> None:
    assert obfuscate(parse("[1923]"), "first", GRAPH) is None
    assert obfuscate(parse("year([Red Key])"), "hypernym", GRAPH) is None  # no other relation from work to year
    assert compute_fog(parse("author([1923])"), GRAPH) is None  # nothing satisfies it: no number
    with pytest.raises(ValueError, match=r"operator 'blur' is unknown; use one of type, initial"):
        obfuscate(parse("[1923]"), "blur", GRAPH)


def test_the_conjunction_of_vague_conditions_is_counted() -> None:
    query = parse("(author^-1(initial^-1([A])) & year^-1(decade^-1([1920s])))")
    assert count_candidates(query, GRAPH) == 2
    query = parse("(author^-1(first^-1([Ada])) & year^-1(decade^-1([1920s])))")
    assert evaluate(query, GRAPH) == {"Red Sea"}


def test_questions_in_words() -> None:
    query = parse("(author^-1(first^-1([Ada])) & year^-1(decade^-1([1920s])))")
    assert write_question(query, GRAPH) == (
        "Find the work whose author is a person whose name begins with the word Ada , "
        "and whose year is a year in the 1920s ."
    )
    assert write_compact(query) == "author Ada ; year 1920s"
    assert write_question(parse("author(year^-1([1923]))"), GRAPH) == "Find the author of a work whose year is 1923 ."
    assert write_question(parse("(author([Red Key]) | editor([Red Key]))"), GRAPH) == (
        "Find the author or editor of Red Key ."
    )


def test_distances_ignore_the_direction_of_facts() -> None:
    assert GRAPH.distances("Red Key") == {"Red Key": 0, "Ann Bo": 1, "1923": 1, "Red Sea": 2, "Ada Cy": 3, "1927": 3}


def test_searching_finds_what_the_evaluator_finds_and_checks_it() -> None:
    searcher = build_searcher(SCENE, top_k=200, limit=500)
    names = SCENE.graph.types
    for statement in SCENE.graph.statements[:30]:
        query = Project(statement.relation, Constant(statement.object), inverse=True)
        found = search_members(query, searcher, lambda name: names[name])
        assert found == evaluate(query, SCENE.graph)
        assert is_member(statement.subject, query, searcher, lambda name: names[name])
        assert not is_member("Nobody", query, searcher, lambda name: names.get(name, ""))


def test_a_searcher_stops_at_its_limit_and_says_so() -> None:
    searcher = build_searcher(SCENE, top_k=3, limit=2)
    for query in ("author", "mayor", "author", "twin"):
        searcher(query)
    assert (searcher.count, searcher.is_exhausted) == (2, True)
    assert search_members(parse("type^-1([work])"), searcher, str) is None  # nothing named: nothing to start from


def test_graphs_are_written_and_read_back(tmp_path) -> None:
    path = tmp_path / "graph.jsonl"
    path.write_text("\n".join(write_graph(SCENE.graph)), encoding="utf-8")
    read = load_graph(path)
    assert read.statements == SCENE.graph.statements
    assert {name: read.types[name] for name in read.types} == {name: SCENE.graph.types[name] for name in read.types}


def bad_graphs() -> Iterator[tuple[str, str]]:
    """Lines of a graph file, and what is said of them."""
    good = '{"subject": "a", "relation": "r", "object": "b", "passages": ["p"]}'
    yield good.replace('"r"', '"type"'), 'graph.jsonl:1: "relation" is'
    yield good.replace('["p"]', "[]"), 'graph.jsonl:1: "passages" is'
    yield f"{good}\n{good}", "graph.jsonl:2: the fact r | a | b is in the file twice"
    yield good.replace('"a"', '""'), 'graph.jsonl:1: "subject" is'


@pytest.mark.parametrize(("text", "message"), list(bad_graphs()))
def test_bad_graph_files_name_line_and_field(text: str, message: str, tmp_path) -> None:
    path = tmp_path / "graph.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        load_graph(path)
    assert message in str(error.value)
