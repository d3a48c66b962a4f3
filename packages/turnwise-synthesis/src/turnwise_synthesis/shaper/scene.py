"""A graph with the passages that state it, and the index that searches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from turnwise.core.protocols import Split
from turnwise.core.seeds import rng
from turnwise.environments.search_qa.corpus import Passage, write_corpus
from turnwise.environments.search_qa.retrieval import Retriever, WordRetriever
from turnwise.environments.search_qa.wordings import Style
from turnwise.environments.search_qa.world import build_world
from turnwise_synthesis.shaper.graph import YEAR, FactGraph, Triple, from_world

DATED = ("work", "organisation")
"""Types of entities that have a year."""
FIRST_YEAR, NUM_YEARS = 1900, 60


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Facts and passages."""

    graph: FactGraph
    passages: tuple[Passage, ...]

    @cached_property
    def retriever(self) -> Retriever:
        """The index over the passages, built on first use."""
        return WordRetriever(self.passages)

    @cached_property
    def stated(self) -> Mapping[str, tuple[Triple, ...]]:
        """Text of a passage -> the facts that it states."""
        facts: dict[str, list[Triple]] = {}
        for each in self.graph.statements:
            for passage in each.passages:
                facts.setdefault(passage, []).append(each.triple)
        return {passage.text: tuple(facts.get(passage.id, ())) for passage in self.passages}

    def read(self, texts: Sequence[str]) -> list[Triple]:
        """Return the facts that these passages state, in order; other texts state none."""
        return [triple for text in texts for triple in self.stated.get(text, ())]


def build_world_scene(split: Split, seed: int, *, num_entities: int, num_words: int, num_distractors: int) -> Scene:
    """Build the scene of a generated world, in which works and organisations also have a year. Pure."""
    world = build_world(seed, split, num_entities, num_words)
    corpus = write_corpus([world], seed=seed, style=Style(), num_distractors=num_distractors)
    random = rng(seed, "years", split)
    dated = [entity for entity, kind in world.types.items() if kind in DATED]
    years = {entity: (str(FIRST_YEAR + random.randrange(NUM_YEARS)), f"y{i}") for i, entity in enumerate(dated)}
    passages = [
        Passage(passage, entity, f"The {YEAR} of {entity} is {year}.") for entity, (year, passage) in years.items()
    ]
    return Scene(graph=from_world(world, corpus, years), passages=(*corpus.passages, *passages))
