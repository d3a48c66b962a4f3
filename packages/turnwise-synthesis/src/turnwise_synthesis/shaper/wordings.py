"""Formal queries in words: as a question for readers, and as the shortest text that a small model can read."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, Union
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, UNTYPED, FactGraph

_CLAUSES = {
    "type": "{who} is {a} {value}",
    "initial": "whose name begins with {value}",
    "first": "whose name begins with the word {value}",
    "decade": "in the {value}",
}
"""What a description says of something."""


def write_question(query: Projection, graph: FactGraph) -> str:
    """Write the question whose answer is the query's only member: "Find the place whose mayor is Orin Vale , and that
    is the birthplace of Mira Tolen ."; the comma ends what is said of others than the answer."""
    noun = write_noun(query, graph, mark=" , and ")
    article, _, rest = noun.partition(" ")
    return f"Find the {rest} ." if article in ("a", "an") else f"Find {noun} ."


def write_noun(query: Projection, graph: FactGraph, kind: str = UNTYPED, *, mark: str = " and ") -> str:
    """Write a noun phrase for a member of the query; `kind` is its type if the context says it, `mark` stands between
    what is said of it."""
    match query:
        case Constant(entity):
            return entity
        case Project(relation, of, False) if relation not in DESCRIPTIONS:
            return f"the {_words(relation)} of {write_noun(of, graph, _types(relation, graph)[0])}"
        case Union(parts) if (names := _names_of_one(parts)) is not None:
            first = parts[0]
            assert isinstance(first, Project)
            if not first.inverse:
                return f"the {names} of {write_noun(first.of, graph, _types(first.relation, graph)[0])}"
    if isinstance(query, Union) and _clause(query, graph, kind) is None:
        return " or ".join(write_noun(part, graph, kind) for part in query.parts)
    parts = query.parts if isinstance(query, Intersection) else (query,)
    named = find_kind(query, graph)
    kind = kind if named == UNTYPED else named
    said = [part for part in parts if part != Project("type", Constant(kind), inverse=True)]
    clauses = [_clause(part, graph, kind) or f"{_who(kind)} is {write_noun(part, graph, kind)}" for part in said]
    return f"{_with_article(kind)} {mark.join(clauses)}".strip()


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


def find_kind(query: Projection, graph: FactGraph) -> str:
    """Return the type of a query's members as its relations say it; `UNTYPED` if they do not."""
    match query:
        case Constant(entity):
            return graph.types.get(entity, UNTYPED)
        case Project("type", Constant(value), True):
            return value
        case Project("decade", _, True):
            return "year"
        case Project(relation, _, inverse):
            return _types(relation, graph)[0 if inverse else 1]
        case Intersection(parts) | Union(parts):
            return next((kind for part in parts if (kind := find_kind(part, graph)) != UNTYPED), UNTYPED)


def _clause(query: Projection, graph: FactGraph, kind: str) -> str | None:
    """Return what a query says of its member, which has this type, as a relative clause; None for a constant and a
    mixed union."""
    match query:
        case Project(relation, Constant(value), True) if relation in DESCRIPTIONS:
            return _CLAUSES[relation].format(value=value, a=_article(value), who=_who(kind))
        case Project(relation, of, True):
            return f"whose {_words(relation)} is {write_noun(of, graph, _types(relation, graph)[1])}"
        case Project():
            return f"{_who(kind)} is {write_noun(query, graph)}"
        case Union(parts) if (names := _names_of_one(parts)) is not None:
            first = parts[0]
            assert isinstance(first, Project)
            if first.inverse:
                return f"whose {names} is {write_noun(first.of, graph, _types(first.relation, graph)[1])}"
            return f"{_who(kind)} is {write_noun(query, graph)}"
    return None


def _names_of_one(parts: Sequence[Projection]) -> str | None:
    """Return "author or mentor" for a union of relations of one thing; None for any other union."""
    projections = [part for part in parts if isinstance(part, Project) and part.relation not in DESCRIPTIONS]
    if len(projections) < len(parts) or len({(part.of, part.inverse) for part in projections}) > 1:
        return None
    return " or ".join(_words(part.relation) for part in projections)


def _types(relation: str, graph: FactGraph) -> tuple[str, str]:
    return graph.relations.get(relation, (UNTYPED, UNTYPED))


def _words(relation: str) -> str:
    return relation.replace("_", " ")


def _who(kind: str) -> str:
    return "who" if kind == "person" else "that"


def _article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"


def _with_article(kind: str) -> str:
    return f"{_article(kind)} {kind.replace('_', ' ')}"
