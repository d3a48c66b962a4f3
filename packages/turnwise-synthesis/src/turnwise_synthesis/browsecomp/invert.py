"""Inverts a fact: from an entity to conditions that only it satisfies together, while each alone leaves several.

BrowseComp's authors start from an answer and add conditions by hand until they believe that it is the only one. Here
uniqueness is counted, in the graph, by two solvers; every condition is necessary; and every condition alone leaves at
least `min_candidates`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, evaluate
from turnwise_synthesis.shaper.flaws import leave_out, list_constants
from turnwise_synthesis.shaper.graph import FactGraph
from turnwise_synthesis.shaper.obfuscation import HYPERNYM, obfuscate
from turnwise_synthesis.shaper.solver import find_members


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an inverted question must be."""

    min_candidates: int = 2
    """Fewest entities that each condition alone leaves."""
    max_conditions: int = 4
    obfuscations: tuple[str, ...] = ("first", "initial", "decade", HYPERNYM)
    """Operators that make a condition vaguer. Not "type" by default: "whose publisher is an organisation" excludes only
    what has no publisher in the graph, so that an answer would be unique by what nobody wrote down."""
    distance: int = 1
    """Facts between the entity and the nearest entity that is named: 1 names its neighbours, 2 only theirs."""


class Outcome(StrEnum):
    """What became of an attempt to invert an entity."""

    MADE = "made"
    NO_CONDITIONS = "no_conditions"
    """Fewer than two conditions leave `min_candidates` or more."""
    NOT_UNIQUE = "not_unique"
    """`max_conditions` conditions leave other candidates."""
    ONE_CONDITION = "one_condition"
    """A single condition is enough, so nothing is to be combined."""
    NO_ANCHOR = "no_anchor"
    """No condition names an entity, so no search could start."""
    SOLVERS_DISAGREE = "solvers_disagree"
    """The second solver's answer is another than the evaluator's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverted:
    """An inverted question, or why there is none."""

    outcome: Outcome
    answer: str
    query: Intersection | None = None
    """None unless the outcome is `MADE`."""
    candidates: tuple[int, ...] = ()
    """Entities that each condition alone leaves."""


def list_conditions(entity: str, graph: FactGraph, plan: Plan) -> list[Projection]:
    """Return conditions on an entity: about its neighbours, vaguely, and exactly if `distance` allows it, or about
    theirs."""
    conditions: list[Projection] = []
    for fact in graph.about.get(entity, ()):
        if fact.subject == fact.object:
            continue
        inverse = fact.subject == entity
        other = fact.object if inverse else fact.subject
        exact = Constant(other)
        vague = [obfuscate(exact, name, graph) for name in plan.obfuscations if name != HYPERNYM]
        objects: list[Projection | None] = [exact] if plan.distance == 1 else _name_through(other, entity, graph)
        for inner in (*objects, *vague):
            if inner is not None:
                condition = Project(fact.relation, inner, inverse)
                conditions.append(condition)
                if HYPERNYM in plan.obfuscations and (wider := obfuscate(condition, HYPERNYM, graph)) is not None:
                    conditions.append(wider)
    return list(dict.fromkeys(conditions))


def invert(entity: str, graph: FactGraph, random: Random, plan: Plan) -> Inverted:
    """Choose conditions on an entity until it is the only one left, then drop the needless ones. One that names an
    entity is the first; the vaguest follow, or, if `max_conditions` of these are not enough, others in random order."""
    left = {each: evaluate(each, graph) for each in list_conditions(entity, graph, plan)}
    usable = [each for each, members in left.items() if len(members) >= plan.min_candidates]
    if len(usable) < 2:
        one = any(members == {entity} for members in left.values())
        return Inverted(outcome=Outcome.ONE_CONDITION if one else Outcome.NO_CONDITIONS, answer=entity)
    anchors = [each for each in usable if _names_entity(each)]
    if not anchors:
        return Inverted(outcome=Outcome.NO_ANCHOR, answer=entity)
    random.shuffle(usable)
    anchor = random.choice(anchors)
    for order in (sorted(usable, key=lambda each: -len(left[each])), usable):
        chosen = _choose(anchor, order, left, entity, plan.max_conditions)
        if chosen is not None:
            return _finish(entity, drop_needless(chosen, left, entity), left, graph)
    return Inverted(outcome=Outcome.NOT_UNIQUE, answer=entity)


def invert_many(
    graph: FactGraph, random: Random, plan: Plan, *, count: int, kinds: Sequence[str] = ()
) -> tuple[list[Inverted], Mapping[str, int]]:
    """Return up to `count` questions about distinct entities of these types (all without `kinds`), with the number of
    attempts by outcome."""
    entities = [entity for entity, kind in graph.types.items() if not kinds or kind in kinds]
    random.shuffle(entities)
    made: list[Inverted] = []
    outcomes: Counter[str] = Counter()
    for entity in entities:
        if len(made) == count:
            break
        attempt = invert(entity, graph, random, plan)
        outcomes[attempt.outcome.value] += 1
        if attempt.query is not None:
            made.append(attempt)
    return made, dict(outcomes)


def drop_needless(
    chosen: Sequence[Projection], left: Mapping[Projection, frozenset[str]], entity: str
) -> list[Projection]:
    """Return the conditions without those that the others make needless, the last chosen dropped first."""
    kept = list(chosen)
    for each in reversed(chosen):
        rest = [left[other] for other in kept if other is not each]
        if rest and frozenset.intersection(*rest) == {entity}:
            kept = [other for other in kept if other is not each]
    return kept


def find_needless(query: Intersection, graph: FactGraph) -> list[Projection]:
    """Return the conditions without which the answer is the same: none in an inverted question."""
    answers = evaluate(query, graph)
    whole = {part: shorter for part, shorter in leave_out(query) if part in query.parts}
    return [part for part, shorter in whole.items() if evaluate(shorter, graph) == answers]


def _choose(
    anchor: Projection,
    order: Sequence[Projection],
    left: Mapping[Projection, frozenset[str]],
    entity: str,
    max_conditions: int,
) -> list[Projection] | None:
    """Return the anchor and the conditions that each leave fewer candidates than those before; None if they do not
    leave the entity alone."""
    chosen, candidates = [anchor], left[anchor]
    for each in order:
        if len(chosen) == max_conditions or candidates == {entity}:
            break
        if len(candidates & left[each]) < len(candidates):
            candidates &= left[each]
            chosen.append(each)
    return chosen if candidates == {entity} else None


def _finish(
    entity: str, kept: Sequence[Projection], left: Mapping[Projection, frozenset[str]], graph: FactGraph
) -> Inverted:
    if len(kept) < 2:
        return Inverted(outcome=Outcome.ONE_CONDITION, answer=entity)
    if not any(_names_entity(each) for each in kept):
        return Inverted(outcome=Outcome.NO_ANCHOR, answer=entity)
    query = Intersection(tuple(kept))
    if evaluate(query, graph) != {entity} or find_members(query, graph) != {entity}:
        return Inverted(outcome=Outcome.SOLVERS_DISAGREE, answer=entity)
    return Inverted(
        outcome=Outcome.MADE, answer=entity, query=query, candidates=tuple(len(left[each]) for each in kept)
    )


def _name_through(other: str, entity: str, graph: FactGraph) -> list[Projection | None]:
    """Return what facts with a third entity say of a neighbour, where they leave only it: it is named through these."""
    found: list[Projection | None] = []
    for fact in graph.about[other]:
        if entity in (fact.subject, fact.object) or fact.subject == fact.object:
            continue
        inverse = fact.subject == other
        third = Project(fact.relation, Constant(fact.object if inverse else fact.subject), inverse)
        if evaluate(third, graph) == {other}:
            found.append(third)
    return found


def _names_entity(query: Projection) -> bool:
    return bool(list_constants(query))
