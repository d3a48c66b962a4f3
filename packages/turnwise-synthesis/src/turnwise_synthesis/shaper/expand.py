"""Builds formal questions and expands them: a constant is replaced by a sub-question whose only answer it is, so that
the answer of the whole question stays.

    setting^-1([Port Vessa])                    Blue Lantern
    setting^-1(mayor^-1([Orin Vale]))           Blue Lantern, since only Port Vessa has this mayor

Three strategies (WebShaper, arXiv 2507.15061, section 3.2). `layer` replaces every constant at once, breadth first, by
sub-questions about entities that are as far from the answer as the question is deep, and drops the conditions that the
others make needless. `sequence` replaces one constant
and leaves the others beside the answer. `random` adds any fact about anything in the question. The original's layer is
the one that has neither redundancy nor shortcuts; the other two are its comparisons. Deviation: the original lets a
model choose and phrase the sub-questions; here they are drawn from the graph, and `family` has the agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from random import Random
from typing import Literal, get_args

from turnwise.core.errors import ConfigError
from turnwise.environments.search_qa.projection import (
    Constant,
    Intersection,
    Project,
    Projection,
    Union,
    evaluate,
)
from turnwise_synthesis.shaper.flaws import list_constants, measure_depth, prune
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, FactGraph
from turnwise_synthesis.shaper.solver import find_members

Strategy = Literal["layer", "sequence", "random"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


class Outcome(StrEnum):
    """What became of an attempt to build or to expand a question."""

    MADE = "made"
    NO_SEED = "no_seed"
    """No conditions on the entity leave only it."""
    NO_SUBQUESTION = "no_subquestion"
    """A constant is the only answer of no question about entities that are new and far enough."""
    OTHER_ANSWER = "other_answer"
    """The evaluator's answer is not the entity."""
    SOLVERS_DISAGREE = "solvers_disagree"
    """The second solver's answer is another than the evaluator's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A question, or why there is none."""

    outcome: Outcome
    query: Projection | None = None
    """None unless the outcome is `MADE`."""
    layers: int = 0
    """How often it was expanded."""


def list_conditions(entity: str, graph: FactGraph) -> list[Projection]:
    """Return what each fact about an entity says of it: "its author is Y", or "it is the author of X"."""
    conditions: list[Projection] = []
    for fact in graph.about.get(entity, ()):
        if fact.subject == entity and fact.object != entity:
            conditions.append(Project(fact.relation, Constant(fact.object), inverse=True))
        elif fact.object == entity and fact.subject != entity:
            conditions.append(Project(fact.relation, Constant(fact.subject)))
    return list(dict.fromkeys(conditions))


def list_unique_questions(entity: str, graph: FactGraph, width: int) -> Iterator[Projection]:
    """Yield the questions with at most `width` conditions whose only answer is the entity, and in which no condition
    can be left out; those with fewer conditions first."""
    conditions = list_conditions(entity, graph)
    members = {condition: evaluate(condition, graph) for condition in conditions}
    unique: list[frozenset[Projection]] = []
    for size in range(1, width + 1):
        for chosen in combinations(conditions, size):
            if any(smaller <= set(chosen) for smaller in unique):
                continue
            if frozenset.intersection(*(members[each] for each in chosen)) == {entity}:
                unique.append(frozenset(chosen))
                yield chosen[0] if size == 1 else Intersection(chosen)


def build_seed(entity: str, graph: FactGraph, random: Random, *, width: int) -> Attempt:
    """Build a question about an entity with `width` conditions next to it, none of which can be left out; fewer if no
    such question exists."""
    found = list(list_unique_questions(entity, graph, width))
    if not found:
        return Attempt(outcome=Outcome.NO_SEED)
    most = max(map(_count_parts, found))
    return check(random.choice([each for each in found if _count_parts(each) == most]), entity, graph, layers=0)


def expand(
    query: Projection, answer: str, graph: FactGraph, random: Random, strategy: Strategy, layers: int
) -> Attempt:
    """Expand a question once. `layers` counts the expansions before this one. Raises ConfigError for an unknown
    strategy."""
    if strategy not in STRATEGIES:
        raise ConfigError(f"strategy={strategy!r} is unknown; use one of {', '.join(STRATEGIES)}")
    if strategy == "random":
        expanded = _add_fact(query, graph, random)
    else:
        expanded = _replace_constants(query, answer, graph, random, every=strategy == "layer")
        if expanded is not None and strategy == "layer":
            expanded = prune(expanded, graph)
    if expanded is None:
        return Attempt(outcome=Outcome.NO_SUBQUESTION)
    return check(expanded, answer, graph, layers=layers + 1)


def grow(entity: str, graph: FactGraph, random: Random, *, width: int, layers: int, strategy: Strategy) -> Attempt:
    """Build a question about an entity and expand it `layers` times. Returns the first attempt that failed, or the
    last one."""
    attempt = build_seed(entity, graph, random, width=width)
    for number in range(layers):
        if attempt.query is None:
            break
        attempt = expand(attempt.query, entity, graph, random, strategy, number)
    return attempt


def grow_many(
    graph: FactGraph, random: Random, *, count: int, width: int, layers: int, strategy: Strategy
) -> tuple[list[tuple[str, Projection]], Mapping[str, int]]:
    """Return up to `count` (answer, question) about distinct entities, with the number of attempts by outcome."""
    entities = [entity for entity in graph.entities if graph.about[entity]]
    random.shuffle(entities)
    made: list[tuple[str, Projection]] = []
    outcomes: Counter[str] = Counter()
    for entity in entities:
        if len(made) == count:
            break
        attempt = grow(entity, graph, random, width=width, layers=layers, strategy=strategy)
        outcomes[attempt.outcome.value] += 1
        if attempt.query is not None:
            made.append((entity, attempt.query))
    return made, dict(outcomes)


def check(query: Projection, answer: str, graph: FactGraph, *, layers: int) -> Attempt:
    """Return a question as made if both solvers find exactly its answer."""
    found = evaluate(query, graph)
    if found != find_members(query, graph):
        return Attempt(outcome=Outcome.SOLVERS_DISAGREE)
    if found != {answer}:
        return Attempt(outcome=Outcome.OTHER_ANSWER)
    return Attempt(outcome=Outcome.MADE, query=query, layers=layers)


def list_used(query: Projection, graph: FactGraph) -> set[str]:
    """Return the constants of a question and the only members of its parts: what an expansion must not bring back."""
    used = {entity for entity, _ in list_constants(query)}
    members = evaluate(query, graph)
    match query:
        case Project(relation, of, _) if relation not in DESCRIPTIONS:
            used |= list_used(of, graph)
        case Intersection(parts) | Union(parts):
            for part in parts:
                used |= list_used(part, graph)
    return used | (members if len(members) == 1 else frozenset())


def _replace_constants(
    query: Projection, answer: str, graph: FactGraph, random: Random, *, every: bool
) -> Projection | None:
    """Replace every constant, or one drawn at random; None if one has no sub-question."""
    constants = [entity for entity, _ in list_constants(query)]
    distances, used, depth = graph.distances(answer), list_used(query, graph), measure_depth(query) + 1
    chosen = constants if every else [random.choice(constants)] if constants else []
    replacements: dict[str, Projection] = {}
    for entity in dict.fromkeys(chosen):
        questions = []
        for question in list_unique_questions(entity, graph, 2):
            named = {name for name, _ in list_constants(question)}
            far = not every or all(distances.get(name, depth) >= depth for name in named)
            if far and not named & used:
                questions.append(question)
        if not questions:
            return None
        replacements[entity] = random.choice(questions)
        used |= {name for name, _ in list_constants(replacements[entity])}
    return substitute(query, replacements) if replacements else None


def substitute(query: Projection, replacements: Mapping[str, Projection]) -> Projection:
    """Return the query with constants replaced; values of descriptions stay."""
    match query:
        case Constant(entity):
            return replacements.get(entity, query)
        case Project(relation, of, inverse):
            return query if relation in DESCRIPTIONS else Project(relation, substitute(of, replacements), inverse)
        case Intersection(parts) | Union(parts):
            return type(query)(tuple(substitute(part, replacements) for part in parts))


def _add_fact(query: Projection, graph: FactGraph, random: Random) -> Projection | None:
    """Intersect one place of the question, drawn at random, with a fact about its only member; None without one."""
    places = [part for part in _list_places(query) if len(evaluate(part, graph)) == 1]
    random.shuffle(places)
    for place in places:
        (member,) = evaluate(place, graph)
        conditions = [each for each in list_conditions(member, graph) if each not in _parts(place)]
        if conditions:
            added = Intersection((*_parts(place), random.choice(conditions)))
            return _swap(query, place, added)
    return None


def _list_places(query: Projection) -> list[Projection]:
    match query:
        case Project(_, of, _):
            return [query, *_list_places(of)]
        case Intersection(parts) | Union(parts):
            return [query, *(place for part in parts for place in _list_places(part))]
    return [query]


def _swap(query: Projection, old: Projection, new: Projection) -> Projection:
    if query == old:
        return new
    match query:
        case Project(relation, of, inverse):
            return Project(relation, _swap(of, old, new), inverse)
        case Intersection(parts) | Union(parts):
            return type(query)(tuple(_swap(part, old, new) for part in parts))
    return query


def _parts(query: Projection) -> Sequence[Projection]:
    return query.parts if isinstance(query, Intersection) else (query,)


def _count_parts(query: Projection) -> int:
    return len(_parts(query))
