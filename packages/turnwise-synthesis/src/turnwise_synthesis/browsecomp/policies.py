"""Scripted searchers of inverted questions: an oracle, the naive demonstrator, a random one.

They work from the text that a model would see; the payload's query states the question."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.policies import Conversation, search_message
from turnwise.environments.search_qa.projection import (
    Constant,
    Intersection,
    Project,
    Projection,
    Union,
    parse,
)
from turnwise.environments.search_qa.questions import UNKNOWN
from turnwise.environments.search_qa.world import RELATIONS
from turnwise_synthesis.browsecomp.environment import NO_SEARCHES
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, UNTYPED, Triple
from turnwise_synthesis.shaper.policies import Ask, act, read_results
from turnwise_synthesis.shaper.solver import search_members, write_query

Step = tuple[str, bool]
"""A relation and whether it is read backwards."""


class OracleSearcher:
    """Searches outwards from what is named, checks the candidates, and answers with the one that is left; "unknown" if
    none is."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next search, or the answer."""
        return act(task, messages, self._plan)

    def _plan(self, task: Task, ask: Ask) -> str:
        types: dict[str, str] = {}
        names: list[str] = []

        def look_up(query: str) -> list[Triple]:
            found = read_results(ask("search", query))
            for relation, subject, target in found:
                subject_type, object_type = RELATIONS.get(relation, (UNTYPED, UNTYPED))
                types.setdefault(subject, subject_type)
                types.setdefault(target, object_type)
                names.append(subject)
            return found

        query = parse(task.payload["query"])
        members = search_members(query, look_up, lambda name: types.get(name, UNTYPED))
        return min(members or (), default=names[-1] if names else UNKNOWN)


class NaiveSearcher:
    """The demonstrator: shows how to search and to answer, but not how to combine.

    It searches for what stands around the first entity that the question names, and answers with a name that it found.
    With probability `wander` it looks the name up first, with a relation of the question in a direction drawn at
    random, up to `MAX_SEARCHES` searches. One answer in two is not the last thing found but an earlier one.
    """

    MAX_SEARCHES = 4

    def __init__(self, wander: float) -> None:
        """`wander` is a probability."""
        self._wander = wander

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the first search, a further one, or the answer."""
        seen = Conversation.of(messages)
        query = parse(task.payload["query"])
        if not seen.queries:
            return search_message(find_first_search(query), 0)
        found = [find_names(searched, result) for searched, result in zip(seen.queries, seen.results, strict=True)]
        earlier = [name for names in found[:-1] for name in names]
        last = found[-1] or earlier
        if not last or seen.results[-1] == NO_SEARCHES:
            return answer_message(rng.choice(earlier or [UNKNOWN]))
        name = rng.choice(last)
        if len(seen.queries) < self.MAX_SEARCHES and rng.random() < self._wander:
            relation, _ = rng.choice(list_steps(query))
            return search_message(write_query(relation, name, inverse=rng.random() < 0.5), len(seen.queries))
        return answer_message(rng.choice(earlier) if earlier and rng.random() < 0.5 else name)


class RandomSearcher:
    """Makes up to three random searches, then answers with a random name that it saw."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a random search or a random answer."""
        seen = Conversation.of(messages)
        names = [name for result in seen.results for _, *pair in read_results(result) for name in pair]
        if not seen.queries or (len(seen.queries) < 3 and rng.random() < 0.5):
            relation, _ = rng.choice(list_steps(parse(task.payload["query"])))
            return search_message(f"{relation} {rng.choice(names) if names else ''}".strip(), len(seen.queries))
        return answer_message(rng.choice(names or [UNKNOWN]))


def find_first_search(query: Projection) -> str:
    """Return the search for what stands around the first entity that a query names; its first relation if it names
    none."""
    found = _find_anchor(query)
    if found is None:
        return list_steps(query)[0][0]
    relation, entity, inverse = found
    return write_query(relation, entity, inverse=inverse)


def find_names(searched: str, result: str) -> list[str]:
    """Return what a search was for: the objects of "relation of X" and the subjects of "relation Y", each once."""
    names = []
    for relation, subject, target in read_results(result):
        if searched == write_query(relation, subject, inverse=False):
            names.append(target)
        elif searched == write_query(relation, target, inverse=True):
            names.append(subject)
    return list(dict.fromkeys(names))


def list_steps(query: Projection) -> list[Step]:
    """Return the relations of a query with their directions, outermost first, descriptions left out."""
    match query:
        case Constant():
            return []
        case Project(relation, of, inverse):
            return [*([] if relation in DESCRIPTIONS else [(relation, inverse)]), *list_steps(of)]
        case Intersection(parts) | Union(parts):
            return [step for part in parts for step in list_steps(part)]


def _find_anchor(query: Projection) -> tuple[str, str, bool] | None:
    match query:
        case Constant():
            return None
        case Project(relation, Constant(entity), inverse):
            return None if relation in DESCRIPTIONS else (relation, entity, inverse)
        case Project(_, of, _):
            return _find_anchor(of)
        case Intersection(parts) | Union(parts):
            return next((found for part in parts if (found := _find_anchor(part)) is not None), None)
