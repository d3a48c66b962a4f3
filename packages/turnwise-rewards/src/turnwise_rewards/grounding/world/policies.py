"""Scripted policies of the family `report`: one that searches for every fact and cites with more or less care, and one
that does anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.policies import search_message
from turnwise.environments.search_qa.world import RELATIONS, Fact
from turnwise_rewards.grounding.world.arguments import Rule
from turnwise_rewards.grounding.world.pages import Shown, list_shown, order_rank
from turnwise_rewards.grounding.world.reports import asked_facts, name_fact, write_line, write_report


class CitingPolicy:
    """Searches for each fact in turn, then reports what it read.

    With probability `care` a claim cites the page that it was read from, otherwise the last page that any tool showed,
    whatever that says. Of two pages that disagree it believes the better one by the rule `resolves`, either if it is
    None. It `opens` the pages that a search names if searches show titles only.
    """

    def __init__(self, *, care: float, resolves: Rule | None, opens: bool) -> None:
        self._care, self._resolves, self._opens = care, resolves, opens

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next search or call, or the report."""
        calls = [call for message in messages for call in message.tool_calls]
        queries = [json.loads(call.arguments)["query"] for call in calls if call.name == "search"]
        shown = list_shown(messages)
        asked = asked_facts(task)
        if self._opens and (page := self._next_page(shown, asked[: len(queries)])) is not None:
            arguments = json.dumps({"page": page})
            call = ToolCall(id=f"call_{len(calls)}", name="open", arguments=arguments)
            return Message(role="assistant", content=(), tool_calls=(call,))
        if len(queries) < len(asked):
            return search_message(name_fact(asked[len(queries)]), len(calls))
        return answer_message(write_report(self._lines(asked, shown, rng)))

    def _next_page(self, shown: Sequence[Shown], asked: Sequence[Fact]) -> str | None:
        """Return a page to open: one about something that was searched for; None if none is left."""
        opened = {page.id for page in shown if page.content is not None}
        subjects = {fact[1] for fact in asked}
        return next((page.id for page in shown if page.text in subjects and page.id not in opened), None)

    def _lines(self, asked: Sequence[Fact], shown: Sequence[Shown], rng: Random) -> list[str]:
        lines = []
        for fact in asked:
            contents = [(page.id, page.content) for page in shown]
            about = {name: page for name, page in contents if page is not None and page[1] == fact}
            if about:
                best = choose_page(about, self._resolves, rng)
                cited = best if rng.random() < self._care else shown[-1].id
                lines.append(write_line(fact, about[best][2], [cited]))
        return lines


def choose_page(about: Mapping[str, tuple[tuple[int, int], Fact, str]], rule: Rule | None, rng: Random) -> str:
    """Return the id of the page that is right by the rule; without a rule, of any."""
    if rule is None:
        return rng.choice(list(about))
    return max(about, key=lambda name: order_rank(about[name][0], rule))


class RandomPolicy:
    """Makes up to four random searches, then reports random values of the asked facts with random pages."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a random search or a random report."""
        asked, shown = asked_facts(task), list_shown(messages)
        calls = sum(len(message.tool_calls) for message in messages)
        if calls < 4 and rng.random() < 0.7:
            return search_message(f"{rng.choice(list(RELATIONS))} of {rng.choice(asked)[1]}", calls)
        values = [page.content[2] for page in shown if page.content is not None] or [fact[1] for fact in asked]
        ids = [page.id for page in shown] or ["1"]
        lines = [write_line(fact, rng.choice(values), [rng.choice(ids)]) for fact in asked]
        return answer_message(write_report(lines))
