"""Policies written by hand for the search world: an oracle, a random baseline and the naive demonstrator.

They work from the text that a model would see. The formal query in the payload states the question; the gold answers
are read only for a user's own questions, which have no formal query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, Task, ToolCall, text_message
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.corpus import read_fact
from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, Union, parse
from turnwise.environments.search_qa.questions import UNKNOWN, stated_fact
from turnwise.environments.search_qa.wordings import Wording, innermost_phrase, list_relations
from turnwise.environments.search_qa.world import RELATIONS

_DOCUMENT_HEAD = re.compile(r"Doc \d+\(Title: .*?\) ")
_NAME = re.compile(r"[A-Z]\w+(?: [A-Z]\w+)*")

Stated = tuple[str, str, str]
"""(relation, subject, object)"""


def search_message(query: str, number: int) -> Message:
    """Return a reply that searches; `number` counts the replies so far and makes call ids unique."""
    call = ToolCall(id=f"call_{number}", name="search", arguments=json.dumps({"query": query}, ensure_ascii=False))
    return Message(role="assistant", content=(), tool_calls=(call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A policy's queries and their results, read from the messages."""

    queries: tuple[str, ...]
    results: tuple[str, ...]
    """The tool's answers."""

    @staticmethod
    def of(messages: Sequence[Message]) -> Conversation:
        """Read the queries and results of a conversation."""
        calls = [call for message in messages for call in message.tool_calls]
        return Conversation(
            queries=tuple(json.loads(call.arguments)["query"] for call in calls),
            results=tuple(message.text for message in messages if message.role == "tool"),
        )

    def facts(self) -> list[Stated]:
        """Every fact that the results state, in order."""
        lines = [_DOCUMENT_HEAD.sub("", line, count=1) for result in self.results for line in result.splitlines()]
        return [fact for line in lines if (fact := read_fact(line)) is not None]

    def names(self) -> list[str]:
        """The names in the results, each once: from facts, or capitalised words if no fact is understood."""
        names = [name for _, *pair in self.facts() for name in pair]
        return list(dict.fromkeys(names or [name for result in self.results for name in _NAME.findall(result)]))


def write_search(
    policy: ScriptedPolicy, task: Task, opening: Sequence[Message], search: Callable[[str], str]
) -> Iterator[str]:
    """Return sample texts of a policy after an opening: tagged searches, results, its answer."""
    messages = list(opening)
    while (reply := policy.reply(task, messages, Random(0))).tool_calls:
        query = Conversation.of([reply]).queries[0]
        results = search(query)
        yield f"<search> {query} </search>"
        yield results
        messages += [reply, text_message("tool", results, tool_call_id=reply.tool_calls[0].id, name="search")]
    yield reply.text


def _query_of(task: Task) -> Projection | None:
    text = task.payload["query"]
    return None if text is None else parse(text)


def _plan(
    query: Projection, facts: Sequence[Stated], asked: Sequence[str], wording: Wording
) -> tuple[set[str], str | None]:
    """Return what is known about a query's members, and the next search that would reveal more (None: nothing is left
    to ask)."""
    match query:
        case Constant(entity):
            return {entity}, None
        case Project(relation, of, inverse):
            names, search = _plan(of, facts, asked, wording)
            if search is not None:
                return set(), search
            members: set[str] = set()
            for name in sorted(names):
                results = {s if inverse else o for r, s, o in facts if r == relation and name == (o if inverse else s)}
                # A forward fact is known once read; "everything whose author is X" only after asking. A sentence may
                # state a relation without its noun, so a second search with only the name is worthwhile.
                phrase = innermost_phrase(Project(relation, Constant(name), inverse), wording)
                searches = [phrase, *([] if inverse else [name])]
                search = next((search for search in searches if search not in asked), None)
                if search is not None and (inverse or not results):
                    return members, search
                members |= results
            return members, None
        case Intersection(parts) | Union(parts):
            sets: list[set[str]] = []
            for part in parts:
                matches, search = _plan(part, facts, asked, wording)
                if search is not None:
                    return set(), search
                sets.append(matches)
            if isinstance(query, Union):
                return set().union(*sets), None
            common = set.intersection(*sets)
            return common, None if common else _next_check(parts, set().union(*sets), asked)


def _next_check(parts: Sequence[Projection], candidates: set[str], asked: Sequence[str]) -> str | None:
    """Return a search that may show that a candidate belongs to a part whose own search did not list it."""
    relations = [part.relation for part in parts if isinstance(part, Project) and part.inverse]
    checks = (
        innermost_phrase(Project(relation, Constant(name))) for name in sorted(candidates) for relation in relations
    )
    return next((check for check in checks if check not in asked), None)


class OraclePolicy:
    """Searches for every hop in turn and answers from what it read; "unknown" if the passages do not say."""

    def __init__(self, wording: Wording = "formal") -> None:
        """`wording` is that of its searches."""
        self._wording = wording

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next search, or the answer."""
        seen = Conversation.of(messages)
        stated = stated_fact(task.payload["question"])
        if stated is not None:
            return answer_message(stated[2])
        query = _query_of(task)
        if query is None:
            return (
                answer_message(task.payload["answers"][0])
                if seen.queries
                else search_message(task.payload["question"], 0)
            )
        members, search = _plan(query, seen.facts(), seen.queries, self._wording)
        if search is not None:
            return search_message(search, len(seen.queries))
        return answer_message(min(members, default=UNKNOWN))


class RandomPolicy:
    """Makes up to three random searches, then answers with a random name it saw."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a random search or a random answer."""
        seen = Conversation.of(messages)
        names = seen.names() + _NAME.findall(task.payload["question"])
        if len(seen.queries) < 3 and rng.random() < 0.5:
            return search_message(f"{rng.choice(list(RELATIONS))} of {rng.choice(names)}", len(seen.queries))
        return answer_message(rng.choice(names))


class NaivePolicy:
    """The demonstrator: shows how to search and answer, but not what to search for.

    It searches once, for the words around the question's first entity, and answers with the result of the first
    relation: right for one hop, wrong for more, "unknown" if no passage fits. With probability `wander` it does not
    answer but looks up its result, with a relation drawn at random from the question's words: this is mostly useless,
    but sometimes (in about `wander / 2` of the two-hop questions) happens to be the second hop. It never searches more
    than `MAX_SEARCHES` times.
    """

    MAX_SEARCHES = 3

    def __init__(self, wander: float, wording: Wording = "formal", *, repeats: bool = True) -> None:
        """`wander` is a probability, `wording` that of its searches. Without `repeats` it looks up its result with a
        relation that it has not yet searched for, if the question has one."""
        self._wander = wander
        self._wording = wording
        self._repeats = repeats

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the first search, a rare further one, or the answer."""
        seen = Conversation.of(messages)
        question: str = task.payload["question"]
        stated = stated_fact(question)
        if stated is not None:
            return answer_message(stated[2])
        query = _query_of(task)
        if not seen.queries:
            return search_message(question if query is None else innermost_phrase(query, self._wording), 0)
        if query is None:
            return answer_message(rng.choice(seen.names() or [UNKNOWN]))
        last = seen.queries[-1]
        answers = [
            s if last == f"{r} {o}" else o
            for r, s, o in seen.facts()
            if last in (f"{r} {o}", innermost_phrase(Project(r, Constant(s)), self._wording))
        ]
        if not answers:
            return answer_message(UNKNOWN)
        answer = rng.choice(answers)
        if len(seen.queries) < self.MAX_SEARCHES and rng.random() < self._wander:
            relations = list_relations(query)
            fresh = [each for each in relations if not any(search.startswith(each) for search in seen.queries)]
            relation = rng.choice(relations if self._repeats else fresh or relations)
            return search_message(
                innermost_phrase(Project(relation, Constant(answer)), self._wording), len(seen.queries)
            )
        return answer_message(answer)
