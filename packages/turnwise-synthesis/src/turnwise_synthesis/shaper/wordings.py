"""Formal queries in words: as a question for readers, and as the shortest text that a small model can read."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, Union
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, UNTYPED, FactGraph

_DESCRIBED = {
    "type": "{a} {value}",
    "initial": "{kind} whose name begins with {value}",
    "first": "{kind} whose name begins with the word {value}",
    "decade": "a year in the {value}",
}


def write_question(query: Projection, graph: FactGraph) -> str:
    """Write the question whose answer is the query's only member."""
    conditions = _conditions(query, graph)
    if conditions is None:
        return f"What is {write_noun(query, graph)} ?"
    return f"Which {_kind_of(query, graph) or UNTYPED} has all of these : {' ; '.join(conditions)} ?"


def write_noun(query: Projection, graph: FactGraph, kind: str | None = None) -> str:
    """Write a noun phrase for a member of the query; `kind` is its type if the context says it."""
    match query:
        case Constant(entity):
            return entity
        case Project(relation, Constant(value), True) if relation in DESCRIPTIONS:
            return _DESCRIBED[relation].format(value=value, a=_article(value), kind=_with_article(kind or UNTYPED))
        case Project(relation, of, False):
            return f"the {_words(relation)} of {write_noun(of, graph, _types(relation, graph)[0])}"
        case Project(relation, _, True):
            return f"{_with_article(_types(relation, graph)[0])} whose {_condition(query, graph)}"
        case Union(parts) if (names := _names_of_one(parts)) is not None:
            first = parts[0]
            assert isinstance(first, Project)
            domain, target = _types(first.relation, graph)
            if first.inverse:
                return f"{_with_article(domain)} whose {names} is {write_noun(first.of, graph, target)}"
            return f"the {names} of {write_noun(first.of, graph, domain)}"
        case Union(parts):
            return " or ".join(write_noun(part, graph, kind) for part in parts)
        case Intersection(parts):
            conditions = _conditions(query, graph)
            if conditions is not None:
                return f"{_with_article(_kind_of(query, graph) or kind or UNTYPED)} whose {' and whose '.join(conditions)}"
            return " that is also ".join(write_noun(part, graph, kind) for part in parts)


def write_compact(query: Projection) -> str:
    """Write the query with its relations and names only: "setting mayor Orin Vale ; author Mira"."""
    match query:
        case Constant(entity):
            return entity
        case Project(relation, Constant(value), True) if relation in DESCRIPTIONS:
            return value
        case Project(relation, of, inverse):
            inner = write_compact(of)
            inner = f"( {inner} )" if isinstance(of, Intersection | Union) else inner
            return f"{_words(relation)} {'' if inverse else 'of '}{inner}"
        case Intersection(parts) | Union(parts):
            mark = " ; " if isinstance(query, Intersection) else " or "
            return mark.join(
                f"( {write_compact(part)} )" if isinstance(part, Intersection | Union) else write_compact(part)
                for part in parts
            )


def _conditions(query: Projection, graph: FactGraph) -> list[str] | None:
    """Return what a query says of its member, "author is Mira Tolen"; None if a part does not say something of it."""
    parts = query.parts if isinstance(query, Intersection) else (query,)
    written = [_condition(part, graph) for part in parts]
    return None if None in written else [each for each in written if each is not None]


def _condition(query: Projection, graph: FactGraph) -> str | None:
    match query:
        case Project(relation, _, True) if relation in DESCRIPTIONS:
            return None
        case Project(relation, of, True):
            return f"{_words(relation)} is {write_noun(of, graph, _types(relation, graph)[1])}"
        case Union(parts) if (names := _names_of_one(parts)) is not None:
            first = parts[0]
            if isinstance(first, Project) and first.inverse:
                return f"{names} is {write_noun(first.of, graph, _types(first.relation, graph)[1])}"
    return None


def _names_of_one(parts: Sequence[Projection]) -> str | None:
    """Return "author or mentor" for a union of relations of one thing; None for any other union."""
    projections = [part for part in parts if isinstance(part, Project) and part.relation not in DESCRIPTIONS]
    if len(projections) < len(parts) or len({(part.of, part.inverse) for part in projections}) > 1:
        return None
    return " or ".join(_words(part.relation) for part in projections)


def _kind_of(query: Projection, graph: FactGraph) -> str | None:
    """Return the type of a query's members if its first condition says it."""
    match query:
        case Intersection(parts) | Union(parts):
            return next((kind for part in parts if (kind := _kind_of(part, graph)) is not None), None)
        case Project(relation, _, inverse) if relation not in DESCRIPTIONS:
            return _types(relation, graph)[0 if inverse else 1]
    return None


def _types(relation: str, graph: FactGraph) -> tuple[str, str]:
    return graph.relations.get(relation, (UNTYPED, UNTYPED))


def _words(relation: str) -> str:
    return relation.replace("_", " ")


def _article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"


def _with_article(kind: str) -> str:
    return f"{_article(kind)} {kind}"
