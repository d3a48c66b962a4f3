"""Judges an expansion: the answer stays, nothing is redundant, there is no shortcut, and it takes more searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, Union, parse
from turnwise_synthesis.shaper.expand import Outcome, check
from turnwise_synthesis.shaper.flaws import REDUNDANT, Found, find_flaws, list_constants, measure_depth
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, FactGraph
from turnwise_synthesis.shaper.scene import Scene
from turnwise_synthesis.shaper.solver import Searcher, search_members

MAX_CHARS = 1_000
"""A longer expansion is ill-formed."""
MAX_RELATIONS = 24
"""An expansion with more relations is ill-formed."""
MAX_SEARCHES = 60
"""Searches after which the searching solver has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is right and wrong with an expansion."""

    problem: str = ""
    """Why it is no question with the same answer; empty if it is one."""
    flaws: tuple[Found, ...] = ()
    searches_before: int = 0
    """Searches that the searching solver needs for the question as it was."""
    searches: int | None = None
    """Searches that it needs for the expansion; None if it does not find the answer."""

    @property
    def is_valid(self) -> bool:
        """Whether it is a question with the same answer."""
        return not self.problem

    @property
    def is_harder(self) -> bool:
        """Whether the searching solver finds the answer, with more searches than before."""
        return self.searches is not None and self.searches > self.searches_before

    @property
    def parts(self) -> dict[str, float]:
        """Parts of the reward, 1 or 0; `success` is all of them."""
        kinds = {found.flaw for found in self.flaws}
        parts = {
            "valid": self.is_valid,
            "not_redundant": self.is_valid and not kinds & set(REDUNDANT),
            "no_shortcut": self.is_valid and not kinds - set(REDUNDANT),
            "harder": self.is_valid and self.is_harder,
        }
        return {name: float(value) for name, value in {**parts, "success": all(parts.values())}.items()}

    def describe(self) -> str:
        """Say in one line what is wrong, for the expander."""
        if self.problem:
            return f"invalid: {self.problem}"
        told = [f"{found.flaw.value} {found.where}" for found in self.flaws]
        if not self.is_harder:
            needs = "does not find the answer" if self.searches is None else f"needs {self.searches} searches"
            told.append(f"not harder: a solver {needs}, {self.searches_before} before")
        return (
            "flawed: " + "; ".join(told) if told else f"good: {self.searches} searches, {self.searches_before} before"
        )


def judge_expansion(text: str, before: Projection, answer: str, scene: Scene, *, top_k: int) -> Verdict:
    """Judge the formal string of an expansion of a question with this only answer. Accepts any text."""
    query = read_expansion(text, scene.graph)
    if isinstance(query, str):
        return Verdict(problem=query)
    outcome = check(query, answer, scene.graph, layers=0).outcome
    if outcome is not Outcome.MADE:
        return Verdict(problem=f"its answer is not {answer}")
    if answer in {entity for entity, _ in list_constants(query)}:
        return Verdict(problem=f"it names its answer {answer}")
    return Verdict(
        flaws=tuple(find_flaws(query, answer, scene, top_k=top_k)),
        searches_before=count_searches(before, answer, scene, top_k=top_k) or 0,
        searches=count_searches(query, answer, scene, top_k=top_k),
    )


def count_searches(query: Projection, answer: str, scene: Scene, *, top_k: int) -> int | None:
    """Return the distinct searches that the searching solver makes for a question; None if it does not end with its
    answer alone within `MAX_SEARCHES`."""
    searcher = build_searcher(scene, top_k=top_k, limit=MAX_SEARCHES)
    found = search_members(query, searcher, lambda name: scene.graph.types.get(name, ""))
    return searcher.count if found == frozenset({answer}) and not searcher.is_exhausted else None


def build_searcher(scene: Scene, *, top_k: int, limit: int) -> Searcher:
    """Return a searcher over the passages of a scene."""
    return Searcher(lambda text: scene.read([p.text for p in scene.retriever.search(text, top_k)]), limit)


def read_expansion(text: str, graph: FactGraph) -> Projection | str:
    """Return the query that a model wrote, its constants stripped, or what is wrong with it. Accepts any text."""
    if len(text) > MAX_CHARS:
        return f"it has {len(text)} characters, more than {MAX_CHARS}"
    try:
        query = _strip(parse(text))
    except (ValueError, RecursionError):
        return "it is no formal expression"
    if measure_depth(query) < 1:
        return "it has no relation"
    relations = _list_relations(query)
    if len(relations) > MAX_RELATIONS:
        return f"it has {len(relations)} relations, more than {MAX_RELATIONS}"
    unknown = sorted(set(relations) - {*graph.relations, *DESCRIPTIONS})
    if unknown:
        return f"unknown relation {', '.join(unknown)}"
    strangers = sorted({entity for entity, _ in list_constants(query)} - set(graph.types))
    return f"unknown entity {', '.join(strangers)}" if strangers else query


def _strip(query: Projection) -> Projection:
    match query:
        case Constant(entity):
            return Constant(entity.strip())
        case Project(relation, of, inverse):
            return Project(relation, _strip(of), inverse)
        case Intersection(parts) | Union(parts):
            return type(query)(tuple(_strip(part) for part in parts))


def _list_relations(query: Projection) -> Sequence[str]:
    match query:
        case Constant():
            return ()
        case Project(relation, of, _):
            return (relation, *_list_relations(of))
        case Intersection(parts) | Union(parts):
            return [relation for part in parts for relation in _list_relations(part)]
