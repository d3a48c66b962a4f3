"""Generated problems: an API of a few tools with opaque names, a request in the user's words, and the calls it
requires.

Pure. A problem can be solved from what is shown alone: the request says "weather" and "city", the API says that its
tool for weather is `weather42` and its parameter for the city is `city17`. Words are matched by equality; names and
values must be copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from turnwise.core.protocols import Split
from turnwise.core.types import ToolSpec
from turnwise.rewards.tool_rl import Call
from turnwise_worlds.tool_calls.words import CAPABILITIES, NUMBERS, SLOTS, VALUES, split_of

NUM_CALLS: Mapping[str, int] = {"1call": 1, "2calls": 2, "3calls": 3, "missing": 0, "irrelevant": 0}
"""Maps the kind of problem to the number of right calls. "missing": a value was omitted, so the reply must ask for it.
"irrelevant": no tool fits."""
MAX_TOOLS, MAX_PARAMETERS = 4, 3
"""Limits of one API; there are enough words for one more tool, the one that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One tool of an episode."""

    name: str
    """The capability followed by a number."""
    capability: str
    """The tool's purpose, in the user's words."""
    parameters: tuple[tuple[str, str], ...]
    """(name, meaning in the user's words); a name is that word and a number. All are required."""

    @property
    def text(self) -> str:
        """The API's line: `weather42 city17 day63`"""
        return " ".join((self.name, *(name for name, _ in self.parameters)))

    def to_spec(self) -> ToolSpec:
        """Return the tool as a JSON schema."""
        properties = {name: {"type": "string", "description": slot} for name, slot in self.parameters}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return ToolSpec(name=self.name, description=self.capability, parameters=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One part of a request."""

    capability: str
    values: tuple[tuple[str, str], ...]
    """(slot, value) in the order of the request."""

    @property
    def text(self) -> str:
        """The wish in words: `weather with city Aldor and day Belmar`"""
        given = " and ".join(f"{slot} {value}" for slot, value in self.values)
        return f"{self.capability} with {given}" if given else self.capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An API, a request, and the right calls (none: ask back or decline)."""

    apis: tuple[Api, ...]
    wishes: tuple[Wish, ...]
    calls: tuple[Call, ...]
    missing: str | None
    """The slot that the request omits and for which a reply must ask."""


def build_problem(
    kind: str,
    split: Split,
    random: Random,
    *,
    num_tools: int,
    max_parameters: int,
    num_words: int,
    shuffle_slots: bool,
) -> Problem:
    """Build a random problem of a kind in `NUM_CALLS`; every tool belongs to the split.

    All numbers, slots and values of a problem are different. `num_tools` (3 to `MAX_TOOLS`) and `max_parameters` (2 to
    `MAX_PARAMETERS`) bound the API; only the first `num_words` numbers and values are used; with `shuffle_slots` a
    request states the values in any order instead of the API's. "missing" omits any value of a tool with several
    parameters under `shuffle_slots`, otherwise the last one.
    """
    apis = _draw_apis(split, random, num_tools + 1, max_parameters, num_words)
    if kind == "missing":
        index = next(index for index, api in enumerate(apis) if len(api.parameters) > 1)
        apis[0], apis[index] = apis[index], apis[0]
    wanted = apis[: max(1, NUM_CALLS[kind])]
    shown = apis[1:] if kind == "irrelevant" else apis[:num_tools]
    values = iter(random.sample(VALUES[:num_words], sum(len(api.parameters) for api in wanted)))
    wishes: list[Wish] = []
    calls: list[Call] = []
    missing = None
    for api in wanted:
        given = [(slot, next(values)) for _, slot in api.parameters]
        calls.append((api.name, {name: value for (name, _), (_, value) in zip(api.parameters, given, strict=True)}))
        if shuffle_slots:
            random.shuffle(given)
        if kind == "missing":
            # After shuffling, the last value is any value.
            missing, _ = given.pop()
        wishes.append(Wish(capability=api.capability, values=tuple(given)))
    random.shuffle(shown)
    return Problem(apis=tuple(shown), wishes=tuple(wishes), calls=tuple(calls[: NUM_CALLS[kind]]), missing=missing)


def _draw_apis(split: Split, random: Random, count: int, max_parameters: int, num_words: int) -> list[Api]:
    """Draw the APIs; at least one of them has two parameters or more."""
    sizes = [random.randint(1, max_parameters) for _ in range(count)]
    sizes[random.randrange(count)] = random.randint(2, max_parameters)
    slots = iter(random.sample(SLOTS, sum(sizes)))
    free = list(NUMBERS[:num_words])
    apis: list[Api] = []
    for capability, size in zip(random.sample(CAPABILITIES, count), sizes, strict=True):
        chosen = [next(slots) for _ in range(size)]
        while True:
            numbers = random.sample(free, 1 + size)
            parameters = tuple((f"{slot}{number}", slot) for slot, number in zip(chosen, numbers[1:], strict=True))
            api = Api(name=f"{capability}{numbers[0]}", capability=capability, parameters=parameters)
            if split_of(api.name, [name for name, _ in parameters]) == split:
                break
        free = [number for number in free if number not in numbers]
        apis.append(api)
    return apis
