"""A knowledge graph: entities with types, and facts `relation(subject) = object`.

Every relation is functional (a subject has at most one object) and some facts do not exist, so that some questions have
no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from turnwise.core.protocols import Split
from turnwise.core.seeds import rng
from turnwise.environments.search_qa.names import MAX_WORDS, EntityType, choose_names

RELATIONS: dict[str, tuple[EntityType, EntityType]] = {
    "birthplace": ("person", "place"),
    "employer": ("person", "organisation"),
    "mentor": ("person", "person"),
    "author": ("work", "person"),
    "publisher": ("work", "organisation"),
    "setting": ("work", "place"),
    "headquarters": ("organisation", "place"),
    "founder": ("organisation", "person"),
    "owner": ("organisation", "person"),
    "mayor": ("place", "person"),
    "twin": ("place", "place"),
}
"""Relation -> (type of the subject, type of the object)."""
RELATIONS_OF: dict[EntityType, tuple[str, ...]] = {
    kind: tuple(name for name, (subject, _) in RELATIONS.items() if subject == kind)
    for kind in ("person", "place", "organisation", "work")
}
SHARES: tuple[tuple[EntityType, float], ...] = (("work", 0.25), ("organisation", 0.2), ("place", 0.25), ("person", 0.3))
"""Share of each type among a world's entities."""
FACT_SHARE = 0.94
"""Probability that a possible fact exists."""
MIN_ENTITIES = 12

Fact = tuple[str, str]
"""(relation, subject); its object is `World.facts[fact]`."""


@dataclass(frozen=True, kw_only=True)
class World:
    """One knowledge graph. Entities are their names, which are unique in the world."""

    split: Split
    types: Mapping[str, EntityType]
    """Entity -> its type, in the order of creation."""
    facts: Mapping[Fact, str]
    """(relation, subject) -> object."""
    num_words: int
    """Number of words from each list that its names may use."""

    @cached_property
    def fact_keys(self) -> tuple[Fact, ...]:
        """All facts, in a fixed order (to draw from)."""
        return tuple(self.facts)

    @cached_property
    def entities(self) -> tuple[str, ...]:
        """All entities, in a fixed order."""
        return tuple(self.types)

    @cached_property
    def objects(self) -> Mapping[Fact, tuple[str, ...]]:
        """(relation, subject) -> its object, as a tuple with one member."""
        return {fact: (target,) for fact, target in self.facts.items()}

    @cached_property
    def subjects(self) -> Mapping[Fact, tuple[str, ...]]:
        """Maps (relation, object) to every subject with that object: the facts read backwards."""
        subjects: dict[Fact, list[str]] = {}
        for (relation, subject), target in self.facts.items():
            subjects.setdefault((relation, target), []).append(subject)
        return {key: tuple(names) for key, names in subjects.items()}


def build_world(seed: int, split: Split, num_entities: int, num_words: int = MAX_WORDS) -> World:
    """Build a random world, as a pure function of the arguments.

    `num_entities` is at least `MIN_ENTITIES`; `num_words` as in `choose_names`.
    """
    random = rng(seed, "world", split)
    used: set[str] = set()
    by_type: dict[EntityType, list[str]] = {}
    for kind, share in SHARES:
        by_type[kind] = choose_names(kind, max(2, round(share * num_entities)), split, random, used, num_words)
    types = {name: kind for kind, names in by_type.items() for name in names}
    facts: dict[Fact, str] = {}
    for subject, kind in types.items():
        for relation in RELATIONS_OF[kind]:
            target = random.choice(by_type[RELATIONS[relation][1]])
            if random.random() < FACT_SHARE and target != subject:
                facts[relation, subject] = target
    return World(split=split, types=types, facts=facts, num_words=num_words)
