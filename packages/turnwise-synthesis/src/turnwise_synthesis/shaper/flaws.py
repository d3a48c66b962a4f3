"""Flaws of formal questions: redundancy and shortcuts.

A question is redundant if it states a fact between two constants, which no one needs to find, or a condition without
which the answer is the same. It has a shortcut if a constant is nearer to the answer in the graph than the question
is deep, or if one search finds a passage that names the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from turnwise.environments.search_qa.projection import (
    Constant,
    Intersection,
    Project,
    Projection,
    Union,
    evaluate,
    to_text,
)
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, FactGraph
from turnwise_synthesis.shaper.scene import Scene
from turnwise_synthesis.shaper.solver import write_query
from turnwise_synthesis.shaper.wordings import write_compact, write_question


class Flaw(StrEnum):
    """What is wrong with a question."""

    CONSTANT_EDGE = "constant_edge"
    """It states a fact between two constants."""
    UNNEEDED_PART = "unneeded_part"
    """A condition can be left out."""
    NEAR_CONSTANT = "near_constant"
    """A constant is nearer to the answer than the question is deep."""
    ONE_SEARCH = "one_search"
    """One search finds a passage that names the answer."""


REDUNDANT = (Flaw.CONSTANT_EDGE, Flaw.UNNEEDED_PART)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A flaw and its place."""

    flaw: Flaw
    where: str
    """The part of the question, or the search."""


def list_constants(query: Projection, depth: int = 0) -> list[tuple[str, int]]:
    """Return every named entity of a query with its depth: the number of relations between it and the answer. The
    values of descriptions are no entities."""
    match query:
        case Constant(entity):
            return [(entity, depth)]
        case Project(relation, _, _) if relation in DESCRIPTIONS:
            return []
        case Project(_, of, _):
            return list_constants(of, depth + 1)
        case Intersection(parts) | Union(parts):
            return [pair for part in parts for pair in list_constants(part, depth)]


def measure_depth(query: Projection) -> int:
    """Return the depth of the deepest constant; 0 if there is none."""
    return max((depth for _, depth in list_constants(query)), default=0)


def find_constant_edges(query: Projection) -> list[Found]:
    """Return the intersections that state a fact between constants: one part is a constant, and another is a relation
    of a constant."""
    found = []
    for part in _walk(query):
        if isinstance(part, Intersection) and any(isinstance(each, Constant) for each in part.parts):
            direct = [each for each in part.parts if isinstance(each, Project) and isinstance(each.of, Constant)]
            found += [Found(flaw=Flaw.CONSTANT_EDGE, where=to_text(each)) for each in direct]
    return found


def find_unneeded_parts(query: Projection, scene: Scene) -> list[Found]:
    """Return the conditions of intersections and the alternatives of unions without which the whole question has the
    same answer."""
    answers = evaluate(query, scene.graph)
    return [
        Found(flaw=Flaw.UNNEEDED_PART, where=to_text(part))
        for part, shorter in leave_out(query)
        if evaluate(shorter, scene.graph) == answers
    ]


def prune(query: Projection, graph: FactGraph) -> Projection:
    """Return the question without the parts that can be left out, the first of them dropped first."""
    answers = evaluate(query, graph)
    while True:
        shorter = next((each for _, each in leave_out(query) if evaluate(each, graph) == answers), None)
        if shorter is None:
            return query
        query = shorter


def find_near_constants(query: Projection, answer: str, scene: Scene) -> list[Found]:
    """Return the constants that are nearer to the answer in the graph than the question is deep."""
    depth, distances = measure_depth(query), scene.graph.distances(answer)
    return [
        Found(flaw=Flaw.NEAR_CONSTANT, where=entity)
        for entity, _ in list_constants(query)
        if distances.get(entity, depth) < depth
    ]


def list_single_searches(query: Projection, scene: Scene) -> list[str]:
    """Return the searches that someone tries who reads the question: all of it, each constant, and each constant with
    its relation."""
    searches = [write_question(query, scene.graph), write_compact(query)]
    searches += [entity for entity, _ in list_constants(query)]
    searches += [
        write_query(part.relation, part.of.entity, inverse=part.inverse)
        for part in _walk(query)
        if isinstance(part, Project) and isinstance(part.of, Constant)
    ]
    return list(dict.fromkeys(searches))


def find_single_search(query: Projection, answer: str, scene: Scene, top_k: int) -> list[Found]:
    """Return the single searches whose best `top_k` passages name the answer."""
    return [
        Found(flaw=Flaw.ONE_SEARCH, where=search)
        for search in list_single_searches(query, scene)
        if any(answer in f"{passage.title} {passage.text}" for passage in scene.retriever.search(search, top_k))
    ]


def find_flaws(query: Projection, answer: str, scene: Scene, *, top_k: int) -> list[Found]:
    """Return all flaws of a question whose only answer is `answer`."""
    return [
        *find_constant_edges(query),
        *find_unneeded_parts(query, scene),
        *find_near_constants(query, answer, scene),
        *find_single_search(query, answer, scene, top_k),
    ]


def _walk(query: Projection) -> Iterator[Projection]:
    yield query
    match query:
        case Project(_, of, _):
            yield from _walk(of)
        case Intersection(parts) | Union(parts):
            for part in parts:
                yield from _walk(part)


def leave_out(query: Projection) -> Iterator[tuple[Projection, Projection]]:
    """Yield every part of an intersection or a union with the whole query without it."""
    match query:
        case Project(relation, of, inverse):
            for part, shorter in leave_out(of):
                yield part, Project(relation, shorter, inverse)
        case Intersection(parts) | Union(parts):
            for place, each in enumerate(parts):
                before, after = parts[:place], parts[place + 1 :]
                rest = (*before, *after)
                yield each, rest[0] if len(rest) == 1 else type(query)(rest)
                for part, shorter in leave_out(each):
                    yield part, type(query)((*before, shorter, *after))
