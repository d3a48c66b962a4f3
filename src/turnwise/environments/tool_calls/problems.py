"""Generated problems: an API of a few tools with opaque names, a request in the user's words, the calls it takes.

Pure. A problem can be solved from what is shown alone: the request says "weather" and "city", the API says that `babak` is for weather
and that its `denmip` is the city. The words meet by being the same; names and values have to be copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.protocols import Split
from turnwise.core.types import ToolSpec
from turnwise.environments.tool_calls.words import CAPABILITIES, NAMES, SLOTS, VALUES, split_of
from turnwise.rewards.tool_rl import Call

NUM_CALLS: Mapping[str, int] = {"1call": 1, "2calls": 2, "3calls": 3, "missing": 0, "irrelevant": 0}
"""Kind of problem -> calls that are right. "missing": a value was left out, so one has to ask. "irrelevant": no tool fits."""
MAX_TOOLS, MAX_PARAMETERS = 4, 3
"""Of one API; there are enough words for one tool more, the one that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One tool of an episode."""

    name: str
    capability: str
    """What it is good for, in the user's words."""
    parameters: tuple[tuple[str, str], ...]
    """(opaque name, what it stands for in the user's words); all are required."""

    @property
    def text(self) -> str:
        """`weather babak denmip = city kizun = day`: what it is good for, then a call with words in the places of values."""
        return " ".join((self.capability, self.name, *(f"{name} = {slot}" for name, slot in self.parameters)))

    def to_spec(self) -> ToolSpec:
        """The same as a JSON schema."""
        properties = {name: {"type": "string", "description": slot} for name, slot in self.parameters}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return ToolSpec(name=self.name, description=self.capability, parameters=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing a request asks for."""

    capability: str
    values: tuple[tuple[str, str], ...]
    """(slot, value) in the order of the request."""

    @property
    def text(self) -> str:
        """`weather with city Aldor and day Belmar`"""
        given = " and ".join(f"{slot} {value}" for slot, value in self.values)
        return f"{self.capability} with {given}" if given else self.capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An API, a request, and the right calls (none: ask back or decline)."""

    kind: str
    apis: tuple[Api, ...]
    wishes: tuple[Wish, ...]
    calls: tuple[Call, ...]


def build_problem(
    kind: str, split: Split, random: Random, *, num_tools: int, max_parameters: int, num_words: int, shuffle_slots: bool
) -> Problem:
    """A random problem of a kind in `NUM_CALLS`; every tool belongs to the split. All words of an episode are different.

    `num_tools` (3 to `MAX_TOOLS`) and `max_parameters` (2 to `MAX_PARAMETERS`) bound the API; only the first `num_words` names and values
    are used; with `shuffle_slots` a request gives the values in any order instead of the API's.
    """
    apis = _draw_apis(split, random, num_tools + 1, max_parameters, NAMES[:num_words])
    if kind == "missing":
        index = next(index for index, api in enumerate(apis) if len(api.parameters) > 1)
        apis[0], apis[index] = apis[index], apis[0]
    wanted = apis[: max(1, NUM_CALLS[kind])]
    shown = apis[1:] if kind == "irrelevant" else apis[:num_tools]
    values = iter(random.sample(VALUES[:num_words], sum(len(api.parameters) for api in wanted)))
    wishes: list[Wish] = []
    calls: list[Call] = []
    for api in wanted:
        given = [(slot, next(values)) for _, slot in api.parameters]
        calls.append((api.name, {name: value for (name, _), (_, value) in zip(api.parameters, given, strict=True)}))
        if shuffle_slots:
            random.shuffle(given)
        if kind == "missing":
            del given[random.randrange(len(given))]
        wishes.append(Wish(capability=api.capability, values=tuple(given)))
    random.shuffle(shown)
    return Problem(kind=kind, apis=tuple(shown), wishes=tuple(wishes), calls=tuple(calls[: NUM_CALLS[kind]]))


def _draw_apis(split: Split, random: Random, count: int, max_parameters: int, words: Sequence[str]) -> list[Api]:
    """At least one of them has two parameters or more."""
    sizes = [random.randint(1, max_parameters) for _ in range(count)]
    sizes[random.randrange(count)] = random.randint(2, max_parameters)
    slots = iter(random.sample(SLOTS, sum(sizes)))
    free = random.sample(words, len(words))
    apis: list[Api] = []
    for capability, size in zip(random.sample(CAPABILITIES, count), sizes, strict=True):
        tool, *parameters = _draw_names(split, random, 1 + size, free)
        apis.append(Api(name=tool, capability=capability, parameters=tuple((name, next(slots)) for name in parameters)))
    return apis


def _draw_names(split: Split, random: Random, count: int, free: list[str]) -> Sequence[str]:
    """A tool's name and its parameters', of the split; they are taken out of `free`."""
    while True:
        names = random.sample(free, count)
        if split_of(names[0], names[1:]) == split:
            for name in names:
                free.remove(name)
            return names
