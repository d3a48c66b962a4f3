"""Two further solvers of formal queries, independent of `projection.evaluate`.

`find_members` asks of every entity whether it satisfies the query, from the list of facts alone: it shares no index
with the evaluator, which computes sets from the inside out. `search_members` knows no graph: it searches
passages, and what it needs is the effort of a question."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, Union
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, FactGraph, Triple, describe_entity

LookUp = Callable[[str], Sequence[Triple]]
"""Returns the facts stated by the passages that a search finds."""


def find_members(query: Projection, graph: FactGraph) -> frozenset[str]:
    """Return the entities, and the values of descriptions, that satisfy a query, by asking every one of them."""
    known: dict[tuple[str, int], bool] = {}
    values = {value for name, kind in graph.types.items() for value in describe_entity(name, kind).values()}
    names = {*graph.types, *values, *_list_names(query)}
    return frozenset(name for name in names if _satisfies(name, query, graph, known))


def _list_names(query: Projection) -> set[str]:
    match query:
        case Constant(name):
            return {name}
        case Project(_, of, _):
            return _list_names(of)
        case Intersection(parts) | Union(parts):
            return {name for part in parts for name in _list_names(part)}


def _satisfies(entity: str, query: Projection, graph: FactGraph, known: dict[tuple[str, int], bool]) -> bool:
    """Answer for one entity; `known` keeps the answers by entity and part of the query, which is the same object."""
    key = entity, id(query)
    if key not in known:
        known[key] = _decide(entity, query, graph, known)
    return known[key]


def _decide(entity: str, query: Projection, graph: FactGraph, known: dict[tuple[str, int], bool]) -> bool:
    match query:
        case Constant(name):
            return entity == name
        case Project(relation, of, True) if relation in DESCRIPTIONS:
            value = describe_entity(entity, graph.types[entity]).get(relation) if entity in graph.types else None
            return value is not None and _satisfies(value, of, graph, known)
        case Project(relation, of, False) if relation in DESCRIPTIONS:
            described = [
                name for name, kind in graph.types.items() if describe_entity(name, kind).get(relation) == entity
            ]
            return any(_satisfies(name, of, graph, known) for name in described)
        case Project(relation, of, inverse):
            others = {
                fact.object if inverse else fact.subject
                for fact in graph.statements
                if fact.relation == relation and entity == (fact.subject if inverse else fact.object)
            }
            return any(_satisfies(other, of, graph, known) for other in others)
        case Intersection(parts):
            return all(_satisfies(entity, part, graph, known) for part in parts)
        case Union(parts):
            return any(_satisfies(entity, part, graph, known) for part in parts)


def search_members(query: Projection, look_up: LookUp, types: Callable[[str], str]) -> frozenset[str] | None:
    """Return the members of a query that searching finds; None if it names nothing to start from.

    It searches for what is named and goes outwards: "author of X" for a relation, "author Y" for its inverse. Of an
    intersection it lists the part with the fewest members and looks up the other parts for each of them. A search that
    returns only the best passages may miss members. `types` gives the type of a name that was read.
    """
    match query:
        case Constant(entity):
            return frozenset({entity})
        case Project(relation, Constant(), True) if relation in DESCRIPTIONS:
            return None
        case Project(relation, of, inverse):
            names = search_members(of, look_up, types)
            if names is None:
                return None
            found: set[str] = set()
            for name in sorted(names):
                found |= _search_relation(relation, name, inverse, look_up)
            return frozenset(found)
        case Union(parts):
            members = [search_members(part, look_up, types) for part in parts]
            return None if None in members else frozenset().union(*(each or () for each in members))
        case Intersection(parts):
            listed = [(part, search_members(part, look_up, types)) for part in parts]
            known = [each for _, each in listed if each is not None]
            if not known:
                return None
            start = min(known, key=len)
            others = [part for part, each in listed if each is not start]
            return frozenset(
                name for name in sorted(start) if all(is_member(name, part, look_up, types) for part in others)
            )


def is_member(name: str, query: Projection, look_up: LookUp, types: Callable[[str], str]) -> bool:
    """Return whether searching shows that a name satisfies a query: checking an answer."""
    match query:
        case Constant(entity):
            return name == entity
        case Project(relation, Constant(value), True) if relation in DESCRIPTIONS:
            return describe_entity(name, types(name)).get(relation) == value
        case Project(relation, of, True):
            objects = sorted(_search_relation(relation, name, False, look_up))
            return any(is_member(other, of, look_up, types) for other in objects)
        case Project(relation, of, _):
            members = search_members(query, look_up, types)
            if members is not None:
                return name in members
            subjects = sorted(_search_relation(relation, name, True, look_up))
            return any(is_member(other, of, look_up, types) for other in subjects)
        case Intersection(parts):
            return all(is_member(name, part, look_up, types) for part in parts)
        case Union(parts):
            return any(is_member(name, part, look_up, types) for part in parts)


def write_query(relation: str, name: str, *, inverse: bool) -> str:
    """Return the search for the objects of a relation, or for its subjects when `inverse`."""
    words = relation.replace("_", " ")
    return f"{words} {name}" if inverse else f"{words} of {name}"


def _search_relation(relation: str, name: str, inverse: bool, look_up: LookUp) -> set[str]:
    stated = look_up(write_query(relation, name, inverse=inverse))
    return {s if inverse else o for r, s, o in stated if r == relation and name == (o if inverse else s)}


class Searcher:
    """Looks up in passages, and counts distinct searches."""

    def __init__(self, search: Callable[[str], Sequence[Triple]], limit: int) -> None:
        """`search` runs one search; after `limit` distinct ones every further search finds nothing."""
        self._search, self._limit = search, limit
        self._found: dict[str, Sequence[Triple]] = {}
        self.is_exhausted = False
        """Whether a search was refused."""

    @property
    def count(self) -> int:
        """Distinct searches so far."""
        return len(self._found)

    def __call__(self, query: str) -> Sequence[Triple]:
        """Return the facts that a search finds; a repeated one is not counted again."""
        if query not in self._found:
            if self.count >= self._limit:
                self.is_exhausted = True
                return ()
            self._found[query] = self._search(query)
        return self._found[query]
