"""Vaguer questions with exact meaning: every operator maps a formal query to one that denotes a superset.

    name        [Mira Tolen]              first^-1([Mira])            everything whose first word is Mira
                                          initial^-1([M])             everything whose name begins with M
                                          type^-1([person])           everything of its type
    year        [1923]                    decade^-1([1920s])
    relation    author^-1([Mira Tolen])   (author^-1(...) | ...)      all relations between the same two types

What is left open is a number: `count_candidates`, and `compute_fog` is its logarithm (WebSailor, arXiv 2507.02592,
calls the effect fog and gives no measure of it).
"""

from __future__ import annotations

import math

from turnwise.environments.search_qa.projection import Constant, Project, Projection, Union, evaluate
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, FactGraph

HYPERNYM = "hypernym"
OPERATORS = (*DESCRIPTIONS, HYPERNYM)
"""Names of all operators."""


def obfuscate(query: Projection, operator: str, graph: FactGraph) -> Projection | None:
    """Return the vaguer query; None if the operator does not apply to this one (a description to a constant that has
    it, a hypernym to a projection whose two types have another relation).

    Raises ValueError for an unknown operator.
    """
    if operator not in OPERATORS:
        raise ValueError(f"operator {operator!r} is unknown; use one of {', '.join(OPERATORS)}")
    match query:
        case Constant(entity) if operator in DESCRIPTIONS:
            values = graph.objects.get((operator, entity), ())
            return Project(operator, Constant(values[0]), inverse=True) if values else None
        case Project(relation, of, inverse) if operator == HYPERNYM and relation in graph.relations:
            alike = sorted(name for name, types in graph.relations.items() if types == graph.relations[relation])
            return Union(tuple(Project(name, of, inverse) for name in alike)) if len(alike) > 1 else None
    return None


def count_candidates(query: Projection, graph: FactGraph) -> int:
    """Return the number of entities that a query leaves possible."""
    return len(evaluate(query, graph))


def compute_fog(query: Projection, graph: FactGraph) -> float | None:
    """Return log2 of the number of candidates, in bits: 0 for a query with one answer. None if nothing satisfies the
    query."""
    count = count_candidates(query, graph)
    return math.log2(count) if count else None
