"""Policies written by hand for API requests: an oracle, a random baseline and the naive demonstrator.

All read what the model reads, the API's lines and the request; only where the prompt leaves the API to a chat template
do they take it from the task. None reads the gold calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise.environments.tool_calls.environment import read_apis
from turnwise.environments.tool_calls.problems import Api, Wish
from turnwise.rewards.tool_rl import Call

DECLINE = "no tool fits"

_API = re.compile(r"^(?: [a-z]+\d+){2,}$", re.MULTILINE)
_REQUEST = re.compile(r"^Request : (.+) \.$", re.MULTILINE)


def calls_message(calls: Sequence[Call]) -> Message:
    """A reply that makes calls, and nothing else."""
    made = [
        ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
        for number, (name, arguments) in enumerate(calls)
    ]
    return Message(role="assistant", content=(), tool_calls=tuple(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a policy understands of what it is shown."""

    apis: tuple[Api, ...]
    wishes: tuple[Wish, ...]

    @staticmethod
    def of(task: Task, messages: Sequence[Message]) -> Reading:
        """Read the first message; the task's API where it shows none."""
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
        """The tool that a wish is about; None if there is none."""
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
    """The first thing a tool needs to know that a wish does not say; None when it says everything."""
    given = dict(wish.values)
    return next((slot for _, slot in api.parameters if slot not in given), None)


def to_call(api: Api, wish: Wish) -> Call:
    """The call that fulfils a wish, without the arguments that the wish does not give."""
    given = dict(wish.values)
    return api.name, {name: given[slot] for name, slot in api.parameters if slot in given}


def ask_for(api: Api | None, slot: str) -> str:
    """Ask for what the tool wants, in words the model has read, so that a small model can copy them."""
    return f"{api.text} which {slot}" if api is not None else f"which {slot}"


class OraclePolicy:
    """Makes every call the request takes; asks back where a value is missing; declines where no tool fits."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The calls, or words."""
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
    """Calls a random tool with random values of the request; every tenth time it makes no call."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """A call without sense, or none."""
        reading = Reading.of(task, messages)
        if rng.random() < 0.1:
            return answer_message(DECLINE)
        api = rng.choice(reading.apis)
        return calls_message(
            [(api.name, {name: rng.choice(reading.values or [slot]) for name, slot in api.parameters})]
        )


class NaivePolicy:
    """The demonstrator: shows how a call is written, where its words come from, and where no call is right.

    A request for one call it always gets right. Of several calls it makes only the first, except that with probability
    `skill` it makes all. Where no call is right it makes none; with probability `tact` it says the right thing, and
    else it asks for what the request gives.
    """

    def __init__(self, skill: float, tact: float) -> None:
        """Both are probabilities."""
        self._skill = skill
        self._tact = tact
        self._oracle = OraclePolicy()

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The right reply, or one with the mistakes of the class."""
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
