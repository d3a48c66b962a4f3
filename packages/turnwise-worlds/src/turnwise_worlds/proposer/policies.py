"""Scripted policies that propose and solve questions. They recognise their role by what they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.names import EntityType
from turnwise.environments.search_qa.projection import Constant, Project, Projection, to_text
from turnwise.environments.search_qa.world import RELATIONS, RELATIONS_OF
from turnwise_worlds.proposer.arguments import KINDS
from turnwise_worlds.proposer.search import ASK, propose_text


def draw_chain(entity: str, kind: EntityType, num_hops: int, rng: Random) -> Projection:
    """Draw a random chain of relations that can be composed, without checking that its facts exist."""
    query: Projection = Constant(entity)
    for _ in range(num_hops):
        relation = rng.choice(RELATIONS_OF[kind])
        query, kind = Project(relation, query), RELATIONS[relation][1]
    return query


def read_question(text: str) -> Projection:
    """Parse a question worded as in `ASK`. Raises ValueError for any other text."""
    head, tail = ASK.split("{phrase}")
    if not text.startswith(head) or not text.endswith(tail):
        raise ValueError(f"{text!r} is not a question of this family")
    *relations, entity = text[len(head) : -len(tail)].split(" of ")
    query: Projection = Constant(entity)
    for relation in reversed(relations):
        query = Project(relation.removeprefix("the "), query)
    return query


class SelfPlayPolicy:
    """Proposes a chain with a number of hops drawn by `weights`, and solves like another policy."""

    def __init__(self, weights: Mapping[str, float], solver: ScriptedPolicy) -> None:
        """`weights` by the names in `KINDS`; `solver` is a policy of the search world."""
        self._weights, self._solver = weights, solver

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a proposal, or a solver's next reply."""
        opening = messages[0].text
        if opening.startswith("Propose"):
            kind = rng.choices(list(self._weights), list(self._weights.values()))[0]
            query = draw_chain(task.payload["entity"], task.payload["type"], KINDS.index(kind) + 1, rng)
            return answer_message(propose_text(query))
        payload = {"question": opening, "query": to_text(read_question(opening))}
        return self._solver.reply(replace(task, payload=payload), messages, rng)
