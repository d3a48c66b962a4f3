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
    calls, answers = read_calls(messages)
    answered = dict(zip(calls, answers, strict=True))

    def ask(tool: str, argument: str) -> str:
        if (tool, argument) not in answered:
            raise Unasked(tool, argument)
        return answered[tool, argument]

    try:
        return answer_message(plan(task, ask))
    except Unasked as need:
        return call_tool(need.tool, need.argument, len(calls))


def read_calls(messages: Sequence[Message]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the calls so far as tool and argument, and what was answered to each."""
    calls = [call for message in messages for call in message.tool_calls]
    answers = {message.tool_call_id: message.text for message in messages if message.role == "tool"}
    asked = [(call.name, json.loads(call.arguments)[ARGUMENTS[call.name]]) for call in calls]
    return asked, [answers[call.id] for call in calls]


def call_tool(tool: str, argument: str, index: int) -> Message:
    """Return the reply that calls a tool as the episode's call number `index`."""
    arguments = json.dumps({ARGUMENTS[tool]: argument}, ensure_ascii=False)
    return Message(
        role="assistant", content=(), tool_calls=(ToolCall(id=f"call_{index}", name=tool, arguments=arguments),)
    )


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
        conditions = list_conditions_read(entity, used, triples)
        return [*conditions, *map(Intersection, combinations(conditions, 2))]

    def _read_relations(self, entity: str, ask: Ask) -> list[Triple]:
        relations = [*RELATIONS, YEAR]
        searches = [write_query(relation, entity, inverse=True) for relation in relations]
        return [triple for search in searches for triple in read_results(ask("search", search))]


class NaiveExpander:
    """The demonstrator: shows what each tool is for, but does not go on until an expansion is good.

    It searches for the first constant and replaces it by a condition that it has read, drawn at random; in one attempt
    of two it validates this first. With a bad verdict it answers nevertheless, but with probability `wander` searches
    for the constant with a relation and validates another replacement.
    """

    MAX_CALLS = 6

    def __init__(self, wander: float) -> None:
        """`wander` is a probability."""
        self._wander = wander

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call, or the expansion."""
        query = parse(task.payload["question"])
        entity = list_constants(query)[0][0]
        calls, answers = read_calls(messages)
        if not calls:
            return call_tool("search", entity, 0)
        tried = [argument for tool, argument in calls if tool == "validate"]
        if calls[-1][0] == "validate":
            if answers[-1].startswith("good") or len(calls) >= self.MAX_CALLS or rng.random() > self._wander:
                return answer_message(tried[-1])
            return call_tool("search", write_query(rng.choice([*RELATIONS, YEAR]), entity, inverse=True), len(calls))
        read = set(read_results(answers[-1]))
        conditions = list_conditions_read(entity, {entity, task.payload["answer"]}, read)
        texts = [space_out(to_text(substitute(query, {entity: condition}))) for condition in conditions]
        text = rng.choice([each for each in texts if each not in tried] or [space_out(to_text(query))])
        return call_tool("validate", text, len(calls)) if tried or rng.random() < 0.5 else answer_message(text)


class RandomExpander:
    """Replaces the first constant by a random relation of it."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return an expansion."""
        query = parse(task.payload["question"])
        entity = list_constants(query)[0][0]
        replaced = Project(rng.choice(list(RELATIONS)), Constant(entity), inverse=rng.random() < 0.5)
        return answer_message(to_text(substitute(query, {entity: replaced})))


def space_out(text: str) -> str:
    """Return a formal string with spaces around names, as text has them: so a name is the same tokens in both."""
    return text.replace("(", "( ").replace(")", " )").replace("[", "[ ").replace("]", " ]")


def list_conditions_read(entity: str, used: set[str], triples: set[Triple]) -> list[Projection]:
    """Return the conditions on an entity by what was read that name none of `used`."""
    graph = build_graph(triples)
    conditions = list_conditions(entity, graph) if entity in graph.about else []
    return [each for each in conditions if not {name for name, _ in list_constants(each)} & used]


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
