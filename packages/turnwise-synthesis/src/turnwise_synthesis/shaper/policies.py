"""Scripted expanders: an oracle that reads, composes and validates, a naive one, and a random one.

They work from the text that a model would see; the payload's question is what the prompt states."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import combinations, islice, product
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.corpus import read_fact
from turnwise.environments.search_qa.projection import Constant, Intersection, Project, Projection, parse, to_text
from turnwise.environments.search_qa.world import RELATIONS
from turnwise_synthesis.shaper.expand import list_conditions, substitute
from turnwise_synthesis.shaper.flaws import list_constants
from turnwise_synthesis.shaper.graph import UNTYPED, YEAR, FactGraph, Statement, Triple
from turnwise_synthesis.shaper.solver import write_query

MAX_VALIDATIONS = 40
"""Expansions that the oracle validates before it gives up and answers with the last one."""
Ask = Callable[[str, str], str]
"""Returns what a tool answered to an argument."""


class Unasked(Exception):
    """The call whose answer a policy needs next."""

    def __init__(self, tool: str, argument: str) -> None:
        super().__init__(tool, argument)
        self.tool, self.argument = tool, argument


ARGUMENTS = {"search": "query", "summarise": "expression", "validate": "expression"}
"""Tool -> its argument."""


def read_line(line: str) -> Triple | None:
    """Return the fact that a passage of a generated world states; None if it states none."""
    start, middle, end = f"The {YEAR} of ", " is ", "."
    if line.startswith(start) and line.endswith(end) and middle in line:
        subject, _, year = line.removeprefix(start).removesuffix(end).rpartition(middle)
        return YEAR, subject, year
    return read_fact(line)


def act(task: Task, messages: Sequence[Message], plan: Callable[[Task, Ask], str]) -> Message:
    """Return the reply of a plan, which is run from its start with the answers so far: the first call whose answer is
    missing, or its result as the answer."""
    calls = [call for message in messages for call in message.tool_calls]
    answers = {message.tool_call_id: message.text for message in messages if message.role == "tool"}
    known = {(call.name, json.loads(call.arguments)[ARGUMENTS[call.name]]): answers[call.id] for call in calls}

    def ask(tool: str, argument: str) -> str:
        if (tool, argument) not in known:
            raise Unasked(tool, argument)
        return known[tool, argument]

    try:
        return answer_message(plan(task, ask))
    except Unasked as need:
        arguments = json.dumps({ARGUMENTS[need.tool]: need.argument}, ensure_ascii=False)
        call = ToolCall(id=f"call_{len(calls)}", name=need.tool, arguments=arguments)
        return Message(role="assistant", content=(), tool_calls=(call,))


class OracleExpander:
    """Reads what the passages say about every constant, replaces all constants at once, and answers with the first
    expansion that `validate` calls good."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call, or the expansion."""
        return act(task, messages, self._plan)

    def _plan(self, task: Task, ask: Ask) -> str:
        query = parse(task.payload["question"])
        constants = list(dict.fromkeys(entity for entity, _ in list_constants(query)))
        answer = task.payload["answer"]
        choices = [self._list_questions(entity, {answer, *constants}, ask) for entity in constants]
        text = task.payload["question"]
        for chosen in islice(product(*choices), MAX_VALIDATIONS):
            text = to_text(substitute(query, dict(zip(constants, chosen, strict=True))))
            if ask("validate", text).startswith("good"):
                break
        return str(text)

    def _list_questions(self, entity: str, used: set[str], ask: Ask) -> list[Projection]:
        """Return the questions of one and of two conditions on an entity that name none of these: whether it is their
        only answer, `validate` knows."""
        triples = {*read_results(ask("search", entity)), *self._read_relations(entity, ask)}
        graph = build_graph(triples)
        if entity not in graph.about:
            return []
        conditions = [
            each for each in list_conditions(entity, graph) if not {name for name, _ in list_constants(each)} & used
        ]
        return [*conditions, *map(Intersection, combinations(conditions, 2))]

    def _read_relations(self, entity: str, ask: Ask) -> list[Triple]:
        relations = [*RELATIONS, YEAR]
        searches = [write_query(relation, entity, inverse=True) for relation in relations]
        return [triple for search in searches for triple in read_results(ask("search", search))]


class NaiveExpander:
    """Searches for the first constant and replaces it by the first fact it reads, without validation."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the search, or the expansion."""
        return act(task, messages, self._plan)

    def _plan(self, task: Task, ask: Ask) -> str:
        query = parse(task.payload["question"])
        entity = list_constants(query)[0][0]
        graph = build_graph(set(read_results(ask("search", entity))))
        conditions = list_conditions(entity, graph) if entity in graph.about else []
        return to_text(substitute(query, {entity: conditions[0]}) if conditions else query)


class RandomExpander:
    """Replaces the first constant by a random relation of it."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return an expansion."""
        query = parse(task.payload["question"])
        entity = list_constants(query)[0][0]
        replaced = Project(rng.choice(list(RELATIONS)), Constant(entity), inverse=rng.random() < 0.5)
        return answer_message(to_text(substitute(query, {entity: replaced})))


def read_results(text: str) -> list[Triple]:
    """Return the facts that the lines of a result state."""
    return [fact for line in text.splitlines() if (fact := read_line(line)) is not None]


def build_graph(triples: set[Triple]) -> FactGraph:
    """Return the graph of what was read."""
    statements = [
        Statement(relation=relation, subject=subject, object=target, passages=("read",))
        for relation, subject, target in sorted(triples)
    ]
    types = {name: UNTYPED for each in statements for name in (each.subject, each.object)}
    return FactGraph(types=types, statements=tuple(statements))
