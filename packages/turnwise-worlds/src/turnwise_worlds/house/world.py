"""The state of a house and what an action does to it. Pure functions, by the rules of ALFWorld's PDDL domain.

One thing at most is held. What is in a place that is closed is neither seen nor taken, and nothing is put there; but a
place may stay closed while a thing is heated, cooled or cleaned with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from turnwise_worlds.house.catalog import CHANGES, LAMP, OPENABLE, kind_of

Kind = Literal["put", "light", "clean", "heat", "cool", "two"]
"""What is asked: to put a thing at a place, as it is, or clean, hot or cold; to look at it under the lamp; to put two
of them at one place. ALFWorld's six types of tasks."""
Verb = Literal["go", "open", "close", "take", "put", "clean", "heat", "cool", "use", "look", "inventory", "examine"]
VERBS: tuple[Verb, ...] = get_args(Verb)
LOOKING: frozenset[Verb] = frozenset({"look", "inventory", "examine"})
"""Verbs that change nothing."""


class Action(NamedTuple):
    """One command, whatever its words."""

    verb: Verb
    thing: str = ""
    """The name of a thing; empty where the verb has none."""
    place: str = ""
    """The name of a place; empty where the verb has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What never changes in an episode."""

    kind: Kind
    wanted: str
    """The kind of thing that the task names."""
    target: str
    """The kind of place that it must come to; empty for "light"."""
    places: tuple[str, ...]
    """Names, such as `drawer 1`."""
    things: tuple[str, ...]
    """Names, such as `egg 1`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A house between two actions."""

    at: str = ""
    """The place where one stands; empty for the middle of the room, where an episode begins."""
    where: tuple[str, ...]
    """The place of each of `House.things`; empty for the one that is held."""
    opened: frozenset[str] = frozenset()
    has: frozenset[tuple[str, str]] = frozenset()
    """Pairs of a thing and what it is: "hot", "cold", "clean"."""
    lit: frozenset[str] = frozenset()
    """Lamps that were used."""


def find_held(house: House, state: State) -> str:
    """Return the thing that is held; "" for none."""
    return next((thing for thing, place in zip(house.things, state.where, strict=True) if not place), "")


def is_open(state: State, place: str) -> bool:
    """Whether one sees what is in a place: it is open, or cannot be closed."""
    return kind_of(place) not in OPENABLE or place in state.opened


def list_inside(house: House, state: State, place: str) -> tuple[str, ...]:
    """Return what is in a place, seen or not."""
    return tuple(thing for thing, at in zip(house.things, state.where, strict=True) if at == place)


def list_seen(house: House, state: State) -> tuple[str, ...]:
    """Return what one sees at the place where one stands."""
    return list_inside(house, state, state.at) if state.at and is_open(state, state.at) else ()


def list_actions(house: House, state: State) -> Iterator[Action]:
    """Yield every possible action; what one examines is held, or the place where one stands."""
    at, held = state.at, find_held(house, state)
    yield from (Action("go", place=place) for place in house.places if place != at)
    yield from (Action("look"), Action("inventory"))
    if held:
        yield Action("examine", thing=held)
    if not at:
        return
    yield Action("examine", place=at)
    if kind_of(at) in OPENABLE:
        yield Action("close" if at in state.opened else "open", place=at)
    # A lamp in a closed place can be used: ALFWorld's rule asks for the same location only.
    yield from (Action("use", thing=thing) for thing in list_inside(house, state, at) if kind_of(thing) == LAMP)
    if not held:
        yield from (Action("take", thing, at) for thing in list_seen(house, state) if kind_of(thing) != LAMP)
        return
    if is_open(state, at):
        yield Action("put", held, at)
    for verb, (place, things, _) in CHANGES.items():
        if kind_of(at) == place and kind_of(held) in things:
            yield Action(verb, held, at)  # type: ignore[arg-type]


def act(house: House, state: State, action: Action) -> State | None:
    """Return the state after an action; None if it is impossible."""
    verb, thing, place = action
    if action not in list_actions(house, state):
        return None
    match verb:
        case "go":
            return replace(state, at=place)
        case "open":
            return replace(state, opened=state.opened | {place})
        case "close":
            return replace(state, opened=state.opened - {place})
        case "take" | "put":
            index = house.things.index(thing)
            moved = "" if verb == "take" else place
            return replace(state, where=(*state.where[:index], moved, *state.where[index + 1 :]))
        case "use":
            return replace(state, lit=state.lit | {thing})
        case "heat" | "cool":
            return replace(state, has=state.has - {(thing, "hot"), (thing, "cold")} | {(thing, CHANGES[verb][2])})
        case "clean":
            return replace(state, has=state.has | {(thing, "clean")})
    return state


def is_wanted(house: House, thing: str) -> bool:
    """Whether a thing is of the kind that the task names."""
    return kind_of(thing) == house.wanted


def is_ready(house: House, state: State, thing: str) -> bool:
    """Whether a thing is as the task wants it: clean, hot or cold where it says so."""
    return house.kind not in CHANGES or (thing, CHANGES[house.kind][2]) in state.has


def count_placed(house: House, state: State, place: str) -> int:
    """Return how many of the things that the task names are in a place and ready."""
    inside = list_inside(house, state, place)
    return sum(is_wanted(house, thing) and is_ready(house, state, thing) for thing in inside)


def list_targets(house: House) -> tuple[str, ...]:
    """Return the places where the task is fulfilled; for "light" none."""
    return tuple(place for place in house.places if kind_of(place) == house.target)


def is_done(house: House, state: State) -> bool:
    """Whether the task is fulfilled: things are at one of the places that it names, or a thing is held where a lamp
    that was used stands."""
    if house.kind == "light":
        held = find_held(house, state)
        lamps = set(list_inside(house, state, state.at)) & state.lit if state.at else set()
        return bool(held and is_wanted(house, held) and lamps)
    needed = 2 if house.kind == "two" else 1
    return any(count_placed(house, state, place) >= needed for place in list_targets(house))
