"""Knowledge projections: questions as set expressions over a graph, with an evaluator, a printer and a parser.

A projection R(V) is the set of entities that stand in relation R to a member of V (WebShaper, arXiv 2507.15061). The
original reads a relation in both directions at once; here a direction is part of the expression, because the relations
of generated worlds are functional forwards only:

    author([Blue Lantern])                    the author of Blue Lantern
    birthplace(author([Blue Lantern]))        the birthplace of that author
    author^-1([Mira Tolen])                   everything Mira Tolen is the author of
    (author^-1([Mira Tolen]) & setting^-1([Port Vessa]))      members of both
    mentor(([Mira Tolen] | [Orin Vale]))      the mentor of either; equals (mentor([Mira Tolen]) | mentor([Orin Vale]))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Graph(Protocol):
    """The parts of a world that the evaluator reads."""

    @property
    def objects(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """(relation, subject) -> objects."""
        ...

    @property
    def subjects(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """(relation, object) -> subjects."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The set with one entity."""

    entity: str


@dataclass(frozen=True, slots=True)
class Project:
    """The objects of `relation` over the members of `of`; its subjects when `inverse`."""

    relation: str
    of: Projection
    inverse: bool = False


@dataclass(frozen=True, slots=True)
class Intersection:
    """Members of every part."""

    parts: tuple[Projection, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """Members of any part."""

    parts: tuple[Projection, ...]


Projection = Constant | Project | Intersection | Union


def evaluate(query: Projection, graph: Graph) -> frozenset[str]:
    """Return the entities that a query denotes in a graph; unknown entities and missing facts yield the empty set."""
    match query:
        case Constant(entity):
            return frozenset({entity})
        case Project(relation, of, inverse):
            members = evaluate(of, graph)
            if inverse:
                return frozenset(
                    subject for member in members for subject in graph.subjects.get((relation, member), ())
                )
            return frozenset(object for member in members for object in graph.objects.get((relation, member), ()))
        case Intersection(parts):
            return frozenset.intersection(*(evaluate(part, graph) for part in parts))
        case Union(parts):
            return frozenset().union(*(evaluate(part, graph) for part in parts))


def to_text(query: Projection) -> str:
    """Write the formal string of a query; `parse` reads it back to an equal query."""
    match query:
        case Constant(entity):
            return "[" + entity.replace("\\", "\\\\").replace("]", "\\]") + "]"
        case Project(relation, of, inverse):
            return f"{relation}{'^-1' if inverse else ''}({to_text(of)})"
        case Intersection(parts):
            return "(" + " & ".join(map(to_text, parts)) + ")"
        case Union(parts):
            return "(" + " | ".join(map(to_text, parts)) + ")"


_TOKEN = re.compile(
    r"\s*(?:\[(?P<entity>(?:[^\]\\]|\\.)*)\]|(?P<relation>\w+)(?P<inverse>\^-1)?\(|(?P<mark>[()&|]))", re.DOTALL
)


def parse(text: str) -> Projection:
    """Parse the query that a formal string denotes.

    Raises ValueError naming the position and what was expected there.
    """
    query, at = _parse(text, 0)
    if text[at:].strip():
        raise ValueError(f"formal query {text!r} continues after its end at position {at}; remove {text[at:]!r}")
    return query


def _token(text: str, at: int, expected: str) -> re.Match[str]:
    match = _TOKEN.match(text, at)
    if match is None:
        raise ValueError(f"formal query {text!r} at position {at}: expected {expected}")
    return match


def _parse(text: str, at: int) -> tuple[Projection, int]:
    """Return the query that starts at a position, and the position after it."""
    token = _token(text, at, "[entity], relation( or (")
    if token["entity"] is not None:
        return Constant(re.sub(r"\\(.)", r"\1", token["entity"], flags=re.DOTALL)), token.end()
    if token["relation"] is not None:
        of, after = _parse(text, token.end())
        close = _token(text, after, ")")
        if close["mark"] != ")":
            raise ValueError(f"formal query {text!r} at position {after}: expected )")
        return Project(token["relation"], of, token["inverse"] is not None), close.end()
    if token["mark"] != "(":
        raise ValueError(f"formal query {text!r} at position {at}: expected [entity], relation( or (")
    first, at = _parse(text, token.end())
    parts = [first]
    operator = None
    while True:
        mark = _token(text, at, "&, | or )")
        if mark["mark"] == ")" and operator is not None:
            return (Intersection if operator == "&" else Union)(tuple(parts)), mark.end()
        if mark["mark"] not in ("&", "|") or operator not in (None, mark["mark"]):
            raise ValueError(
                f"formal query {text!r} at position {at}: expected {operator or '& or |'}{' or )' if operator else ''}"
            )
        operator = mark["mark"]
        part, at = _parse(text, mark.end())
        parts.append(part)
