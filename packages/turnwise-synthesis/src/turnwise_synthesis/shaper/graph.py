"""A graph of facts, each with the passages that state it: what formal questions are asked about."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from turnwise.environments.search_qa.corpus import Corpus
from turnwise.environments.search_qa.world import World

Triple = tuple[str, str, str]
"""(relation, subject, object)"""
YEAR = "year"
"""The type of years, and the relation between something and its year."""
UNTYPED = "thing"
"""The type of an entity of which no type is known."""
CLEAR = 0.9
"""Share of a relation's subjects (objects) that must have one type for the relation to have it."""
DESCRIPTIONS = ("type", "initial", "first", "decade")
"""Relations between an entity and a vaguer description of it; every entity has them, and no passage states them."""
_YEAR = re.compile(r"[0-9]{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A fact and where it is stated."""

    relation: str
    subject: str
    object: str
    passages: tuple[str, ...]
    """Ids of the passages that state it, at least one."""

    @property
    def triple(self) -> Triple:
        """(relation, subject, object)"""
        return self.relation, self.subject, self.object


def describe_entity(entity: str, kind: str) -> dict[str, str]:
    """Return the descriptions of an entity by relation: its `type`, the `initial` and the `first` word of a name of
    several words, the `decade` of a year."""
    found = {"type": kind}
    if _YEAR.fullmatch(entity):
        return {**found, "decade": f"{entity[:3]}0s"}
    words = entity.split()
    if len(words) > 1:
        found |= {"initial": words[0][0].upper(), "first": words[0]}
    return found


@dataclass(frozen=True, kw_only=True)
class FactGraph:
    """Implements `projection.Graph`; its relations include `DESCRIPTIONS`. A relation may have several objects."""

    types: Mapping[str, str]
    """Entity -> type, for every entity of a statement."""
    statements: tuple[Statement, ...]
    """Every fact once."""

    @cached_property
    def entities(self) -> tuple[str, ...]:
        """All entities, in a fixed order."""
        return tuple(self.types)

    @cached_property
    def objects(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """(relation, subject) -> objects, descriptions included."""
        return _index((s.relation, s.subject, s.object) for s in self._with_descriptions)

    @cached_property
    def subjects(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """(relation, object) -> subjects, descriptions included."""
        return _index((s.relation, s.object, s.subject) for s in self._with_descriptions)

    @cached_property
    def relations(self) -> Mapping[str, tuple[str, str]]:
        """Relation -> the types of its subjects and objects; `UNTYPED` where less than `CLEAR` of them have one
        type."""
        counts: dict[str, tuple[Counter[str], Counter[str]]] = {}
        for each in self.statements:
            subjects, objects = counts.setdefault(each.relation, (Counter(), Counter()))
            subjects[self.types[each.subject]] += 1
            objects[self.types[each.object]] += 1
        return {relation: (_choose(subjects), _choose(objects)) for relation, (subjects, objects) in counts.items()}

    @cached_property
    def about(self) -> Mapping[str, tuple[Statement, ...]]:
        """Entity -> the statements in which it is subject or object."""
        found: dict[str, list[Statement]] = {entity: [] for entity in self.types}
        for each in self.statements:
            found[each.subject].append(each)
            if each.object != each.subject:
                found[each.object].append(each)
        return {entity: tuple(each) for entity, each in found.items()}

    def distances(self, start: str) -> dict[str, int]:
        """Return the number of facts on the shortest way from `start` to every entity that can be reached, whatever
        the direction of the facts."""
        found, waiting = {start: 0}, deque([start])
        while waiting:
            here = waiting.popleft()
            for each in self.about.get(here, ()):
                other = each.object if each.subject == here else each.subject
                if other not in found:
                    found[other] = found[here] + 1
                    waiting.append(other)
        return found

    @cached_property
    def _with_descriptions(self) -> list[Statement]:
        described = [
            Statement(relation=relation, subject=entity, object=value, passages=())
            for entity, kind in self.types.items()
            for relation, value in describe_entity(entity, kind).items()
        ]
        return [*self.statements, *described]


def _choose(kinds: Counter[str]) -> str:
    kind, count = kinds.most_common(1)[0]
    return kind if count >= CLEAR * kinds.total() else UNTYPED


def _index(triples: Iterable[Triple]) -> dict[tuple[str, str], tuple[str, ...]]:
    found: dict[tuple[str, str], list[str]] = {}
    for relation, key, value in triples:
        found.setdefault((relation, key), []).append(value)
    return {key: tuple(values) for key, values in found.items()}


def from_world(world: World, corpus: Corpus, years: Mapping[str, tuple[str, str]]) -> FactGraph:
    """Return the graph of a world and of the years of some of its entities, given as (year, id of the passage)."""
    statements = [
        Statement(
            relation=relation,
            subject=subject,
            object=target,
            passages=(corpus.passages[corpus.evidence[relation, subject]].id,),
        )
        for (relation, subject), target in world.facts.items()
    ]
    statements += [
        Statement(relation=YEAR, subject=entity, object=year, passages=(passage,))
        for entity, (year, passage) in years.items()
    ]
    types: dict[str, str] = {**world.types, **{year: YEAR for year, _ in years.values()}}
    return FactGraph(types=types, statements=tuple(statements))
