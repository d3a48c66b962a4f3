"""Scripted policies that speak for the planner and its searchers; the opening shows which of these they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.policies import Conversation, search_message
from turnwise.environments.search_qa.projection import Constant, Project, parse
from turnwise.environments.search_qa.questions import UNKNOWN, stated_fact
from turnwise.environments.search_qa.wordings import innermost_phrase, list_relations
from turnwise.environments.search_qa.world import RELATIONS
from turnwise_worlds.delegate.environment import ASK

FIND = "Find "
"""How a searcher's opening begins."""


class OraclePolicy:
    """The planner asks for the relations of the chain one by one and answers with what the last searcher found; a
    searcher searches once and answers with what the passages state, or "unknown"."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call, or the answer."""
        seen = Conversation.of(messages)
        if (query := read_opening(messages)) is not None:
            return find(query, seen)
        stated = stated_fact(task.payload["question"])
        if stated is not None:
            return answer_message(stated[2])
        formal = parse(task.payload["query"])
        if not seen.results:
            return ask_message(innermost_phrase(formal), 0)
        relations = list_relations(formal)[::-1]
        found, count = seen.results[-1], len(seen.results)
        if found == UNKNOWN or count == len(relations):
            return answer_message(found)
        return ask_message(innermost_phrase(Project(relations[count], Constant(found))), count)


class NaivePolicy:
    """The demonstrator: shows how to ask, search and answer, but not what to ask for.

    The planner asks only for the first relation and answers with the result: right for one hop, wrong for more. With
    probability `wander` it asks more about what was found, under a relation drawn at random from the question's words.
    It never asks more than `MAX_ASKED` times.
    """

    MAX_ASKED = 3

    def __init__(self, wander: float) -> None:
        """`wander` is a probability."""
        self._wander = wander

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the first call, a rare further one, or the answer."""
        seen = Conversation.of(messages)
        if not seen.results or read_opening(messages) is not None:
            return OraclePolicy().reply(task, messages, rng)
        found, count = seen.results[-1], len(seen.results)
        if found == UNKNOWN or count == self.MAX_ASKED or rng.random() >= self._wander:
            return answer_message(found)
        relation = rng.choice(list_relations(parse(task.payload["query"])))
        return ask_message(innermost_phrase(Project(relation, Constant(found))), count)


class RandomPolicy:
    """Asks and searches for random things up to three times, then answers with something it read."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a random call or a random answer."""
        seen = Conversation.of(messages)
        names = seen.names() or list(seen.results) or [UNKNOWN]
        if len(seen.queries) == 3 or (seen.queries and rng.random() < 0.5):
            return answer_message(rng.choice(names))
        write = ask_message if read_opening(messages) is None else search_message
        return write(f"{rng.choice(list(RELATIONS))} of {rng.choice(names)}", len(seen.queries))


def read_opening(messages: Sequence[Message]) -> str | None:
    """Return what a searcher must find; None in the planner's conversation."""
    opening = messages[0].text
    return opening.removeprefix(FIND).strip() if opening.startswith(FIND) else None


def find(query: str, seen: Conversation) -> Message:
    """Return a searcher's next reply: the search, then what the passages state about exactly the query."""
    if not seen.queries:
        return search_message(query, 0)
    answers = [target for relation, subject, target in seen.facts() if query == f"{relation} of {subject}"]
    return answer_message(answers[0] if answers else UNKNOWN)


def ask_message(query: str, number: int) -> Message:
    """Return a reply that asks a searcher; `number` counts the replies so far and makes call ids unique."""
    call = ToolCall(id=f"call_{number}", name=ASK, arguments=json.dumps({"query": query}, ensure_ascii=False))
    return Message(role="assistant", content=(), tool_calls=(call,))
