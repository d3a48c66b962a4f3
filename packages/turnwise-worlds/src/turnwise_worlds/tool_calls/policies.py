"""Policies written by hand for API requests: an oracle, a random baseline and the naive demonstrator.

All of them read what the model reads, the API's lines and the request; only if the prompt leaves the API to a chat
template do they take it from the task. None reads the gold calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise.rewards.tool_rl import Call
from turnwise_worlds.tool_calls.environment import read_apis
from turnwise_worlds.tool_calls.problems import Api, Wish

DECLINE = "no tool fits"

_API = re.compile(r"^(?: [a-z]+\d+){2,}$", re.MULTILINE)
_REQUEST = re.compile(r"^Request : (.+) \.$", re.MULTILINE)


def calls_message(calls: Sequence[Call]) -> Message:
    """Return a reply that consists only of calls."""
    made = [
        ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
        for number, (name, arguments) in enumerate(calls)
    ]
    return Message(role="assistant", content=(), tool_calls=tuple(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a policy understands from the first message."""

    apis: tuple[Api, ...]
    wishes: tuple[Wish, ...]

    @staticmethod
    def of(task: Task, messages: Sequence[Message]) -> Reading:
        """Read the first message; uses the task's API if the message shows none."""
        text = messages[0].text
        apis = [
            Api(
                name=name,
                capability=_word_of(name),
                parameters=tuple((parameter, _word_of(parameter)) for parameter in parameters),
            )
            for name, *parameters in (line.split() for line in _API.findall(text))
        ]
        request = _REQUEST.search(text)
        wishes = [_read_wish(wish) for wish in (request[1] if request else "").split(" then ")]
        return Reading(apis=tuple(apis) or read_apis(task), wishes=tuple(wishes))

    def api_for(self, wish: Wish) -> Api | None:
        """Return the tool for a wish; None if there is none."""
        return next((api for api in self.apis if api.capability == wish.capability), None)

    @property
    def values(self) -> list[str]:
        """Every value of the request."""
        return [value for wish in self.wishes for _, value in wish.values]


def _word_of(name: str) -> str:
    return name.rstrip("0123456789")


def _read_wish(text: str) -> Wish:
    capability, _, given = text.partition(" with ")
    pairs = [pair.partition(" ") for pair in given.split(" and ") if pair]
    return Wish(capability=capability, values=tuple((slot, value) for slot, _, value in pairs))


def find_missing(api: Api, wish: Wish) -> str | None:
    """Return the first parameter of a tool that a wish does not state; None if it states all."""
    given = dict(wish.values)
    return next((slot for _, slot in api.parameters if slot not in given), None)


def to_call(api: Api, wish: Wish) -> Call:
    """Return the call that fulfils a wish, without arguments that the wish does not state."""
    given = dict(wish.values)
    return api.name, {name: given[slot] for name, slot in api.parameters if slot in given}


def ask_for(api: Api | None, slot: str) -> str:
    """Return a question for a missing value, in words from the prompt, so that a small model can copy them."""
    return f"{api.text} which {slot}" if api is not None else f"which {slot}"


class OraclePolicy:
    """Makes every call that the request requires; asks back if a value is missing; declines if no tool fits."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the calls, or words."""
        reading = Reading.of(task, messages)
        calls: list[Call] = []
        for wish in reading.wishes:
            api = reading.api_for(wish)
            if api is None:
                return answer_message(DECLINE)
            missing = find_missing(api, wish)
            if missing is not None:
                return answer_message(ask_for(api, missing))
            calls.append(to_call(api, wish))
        return calls_message(calls)


class RandomPolicy:
    """Calls a random tool with random values from the request; every tenth time it makes no call."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a meaningless call, or none."""
        reading = Reading.of(task, messages)
        if rng.random() < 0.1:
            return answer_message(DECLINE)
        api = rng.choice(reading.apis)
        return calls_message(
            [(api.name, {name: rng.choice(reading.values or [slot]) for name, slot in api.parameters})]
        )


class NaivePolicy:
    """The demonstrator: shows how to write a call, where its words come from, and when no call is right.

    It always answers a request for one call correctly. Of several calls it makes only the first, or all with
    probability `skill`. If no call is right it makes none; with probability `tact` it says the right thing, otherwise
    it asks for something that the request states.
    """

    def __init__(self, skill: float, tact: float) -> None:
        """Both are probabilities."""
        self._skill = skill
        self._tact = tact
        self._oracle = OraclePolicy()

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the right reply, or one with the mistakes of the class."""
        right = self._oracle.reply(task, messages, rng)
        if rng.random() < (self._skill if right.tool_calls else self._tact):
            return right
        reading = Reading.of(task, messages)
        wish = reading.wishes[0]
        api = reading.api_for(wish)
        if right.tool_calls:
            assert api is not None
            return calls_message([to_call(api, wish)])
        slot, _ = wish.values[0]
        return answer_message(ask_for(api, slot))
