"""Scripted policies over servers' tools. They read the solution in the row, and the tools' answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.mcp.rows import Row, from_payload, list_calls
from turnwise.environments.replies import answer_message


def call_message(messages: Sequence[Message], name: str, arguments: Mapping[str, Any]) -> Message:
    """Return a reply that makes one call."""
    text = json.dumps(arguments, ensure_ascii=False)
    call = ToolCall(id=f"call_{len(messages)}", name=name, arguments=text)
    return Message(role="assistant", content=(), tool_calls=(call,))


def count_replies(messages: Sequence[Message]) -> int:
    """Return how many replies a conversation has."""
    return sum(message.role == "assistant" for message in messages)


class OraclePolicy:
    """Makes the calls of the row, then gives its first answer."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call, or the answer. Raises ConfigError if the row has neither calls nor an answer."""
        row = from_payload(task.payload)
        if not row.calls and not row.answers:
            raise ConfigError(
                f"task {task.id} has no solution to demonstrate; add `calls` and `answer` to its row, or set "
                "sft.steps=0"
            )
        made = count_replies(messages)
        if made < len(row.calls):
            name, arguments = row.calls[made]
            return call_message(messages, name, arguments)
        return answer_message(row.answers[0] if row.answers else "")


class NaivePolicy:
    """The demonstrator: shows how to write a call and an answer, but not that one call may lead to another.

    With probability `skill` it makes all calls of the row; otherwise it makes the first and answers with the last word
    it read.
    """

    def __init__(self, skill: float) -> None:
        """`skill` is a probability, drawn before every call after the first."""
        self._skill = skill
        self._oracle = OraclePolicy()

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call, or an answer."""
        made = count_replies(messages)
        row = from_payload(task.payload)
        if made == 0 or not row.calls or (made < len(row.calls) and rng.random() < self._skill):
            return self._oracle.reply(task, messages, rng)
        words = messages[-1].text.split()
        return answer_message(words[-1] if words else "")


class RandomPolicy:
    """Makes calls of other rows, and every third time gives another row's answer."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Calls and answers come from `rows`."""
        self._calls = list_calls(rows)
        self._answers = [answer for row in rows for answer in row.answers[:1]] or [""]

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a meaningless call or answer."""
        if self._calls and rng.random() < 2 / 3:
            return call_message(messages, *rng.choice(self._calls))
        return answer_message(rng.choice(self._answers))
