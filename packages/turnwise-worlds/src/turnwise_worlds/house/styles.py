"""The words of a house: how actions are commanded, and what is said of their outcomes. Two styles of the same.

| | full | terse |
|---|---|---|
| task | Your task is to: put a clean egg in/on a shelf. | clean egg shelf |
| command | go to fridge 1 | go fridge |
| outcome | You arrive at fridge 1. The fridge 1 is closed. | fridge shut |
| command | take egg 1 from fridge 1 | take egg |
| outcome | You pick up the egg 1 from the fridge 1. | got egg |
| command | move egg 1 to shelf 1 | put |
| what is impossible | Nothing happens. | no |

"full" has ALFWorld's commands and sentences, "terse" one token per word for models that learn the words from
demonstrations. A terse name leaves the number 1 out, and a terse command the place where one stands and the thing that
is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise_worlds.house.catalog import LAMP, OPENABLE, kind_of
from turnwise_worlds.house.world import Action, House, State, Verb, find_held, is_open, list_seen

StyleName = Literal["full", "terse"]
BLANK = "."
"""What is shown in place of an outcome that is hidden."""
_QUALITIES = ("hot", "cold", "clean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """One way to say it all."""

    open: Callable[[House], str]
    """Writes the first message: the places and the task."""
    remind: Callable[[House], str]
    """Writes the task once more, to follow an outcome."""
    command: Callable[[Action], str]
    """Writes an action."""
    read: Callable[[House, State, str], Action | None]
    """Reads a command, given the state before it; None for a text that is none. What it names need not exist."""
    report: Callable[[House, State, Action], str]
    """Writes the outcome of an action, given the state after it."""
    nothing: str
    """The outcome of what is impossible."""


# ------------------------------------------------------------------------------------------------ full

_RULES = (
    "You act in a house by commands: go to PLACE, open PLACE, close PLACE, take THING from PLACE, move THING to PLACE, "
    "clean THING with PLACE, heat THING with PLACE, cool THING with PLACE, use THING, examine THING or PLACE, look, "
    "inventory. You can hold one thing at a time. Write one command in each reply: <answer> go to desk 1 </answer>\n\n"
)
_TASKS: Mapping[str, str] = {
    "put": "put {a_thing} in/on {a_place}",
    "light": "look at {a_thing} under the desklamp",
    "clean": "put a clean {thing} in/on {a_place}",
    "heat": "put a hot {thing} in/on {a_place}",
    "cool": "put a cool {thing} in/on {a_place}",
    "two": "put two {thing} in/on {a_place}",
}
_FULL_COMMANDS: Mapping[Verb, str] = {
    "go": "go to {place}",
    "open": "open {place}",
    "close": "close {place}",
    "take": "take {thing} from {place}",
    "put": "move {thing} to {place}",
    "clean": "clean {thing} with {place}",
    "heat": "heat {thing} with {place}",
    "cool": "cool {thing} with {place}",
    "use": "use {thing}",
    "examine": "examine {thing}{place}",
    "look": "look",
    "inventory": "inventory",
}
_FULL_OUTCOMES: Mapping[Verb, str] = {
    "go": "You arrive at {place}. {inside}",
    "open": "You open the {place}. {inside}",
    "close": "You close the {place}.",
    "take": "You pick up the {thing} from the {place}.",
    "put": "You move the {thing} to the {place}.",
    "clean": "You clean the {thing} using the {place}.",
    "heat": "You heat the {thing} using the {place}.",
    "cool": "You cool the {thing} using the {place}.",
    "use": "You turn on the {thing}.",
}
_JOINTS: Mapping[str, Sequence[str]] = {
    "take": ("from",),
    "move": ("to",),
    "put": ("in/on", "in", "on"),
    "clean": ("with",),
    "heat": ("with",),
    "cool": ("with",),
}
"""The words between thing and place. `put THING in/on PLACE` is how ALFWorld before 0.4 says `move`; models also write
one of the two words."""


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _list(names: Sequence[str]) -> str:
    """Write `a pen 1, a cup 1, and a egg 1`, with ALFWorld's one article; "nothing" for none."""
    items = [f"a {name}" for name in names]
    if len(items) < 2:
        return "".join(items) or "nothing"
    return f"{', '.join(items[:-1])}, and {items[-1]}"


def _open_full(house: House) -> str:
    seen = _list(house.places)
    return (
        f"{_RULES}You are in the middle of a room. Looking quickly around you, you see {seen}.\n{_remind_full(house)}"
    )


def _remind_full(house: House) -> str:
    task = _TASKS[house.kind].format(
        thing=house.wanted, a_thing=_article(house.wanted), a_place=house.target and _article(house.target)
    )
    return f"\nYour task is to: {task}."


def _command_full(action: Action) -> str:
    return _FULL_COMMANDS[action.verb].format(thing=action.thing, place=action.place)


def _read_full(house: House, state: State, text: str) -> Action | None:
    words = text.lower().split()
    match words:
        case ["look"] | ["inventory"]:
            return Action(words[0])  # type: ignore[arg-type]
        case ["go", "to", *place]:
            return Action("go", place=" ".join(place))
        case ["open" | "close" as verb, *place]:
            return Action(verb, place=" ".join(place))  # type: ignore[arg-type]
        case ["use", *thing]:
            return Action("use", thing=" ".join(thing))
        case ["examine", *rest]:
            name = " ".join(rest)
            return Action("examine", place=name) if name in house.places else Action("examine", thing=name)
        case [verb, kind, number, joint, *place] if joint in _JOINTS.get(verb, ()):
            done: Verb = "put" if verb == "move" else verb  # type: ignore[assignment]
            return Action(done, f"{kind} {number}", " ".join(place))
    return None


def _report_full(house: House, state: State, action: Action) -> str:
    verb, thing, place = action
    match verb:
        case "look" if not state.at:
            return f"You are in the middle of a room. Looking quickly around you, you see {_list(house.places)}."
        case "look":
            return f"You are facing the {state.at}. Next to it, you see nothing."
        case "inventory":
            held = find_held(house, state)
            return f"You are carrying: a {held}." if held else "You are not carrying anything."
        case "examine" if thing:
            return _examine_full(state, thing)
        case "examine":
            return _inside_full(house, state)
    return _FULL_OUTCOMES[verb].format(thing=thing, place=place, inside=_inside_full(house, state))


def _inside_full(house: House, state: State) -> str:
    place = state.at
    if not is_open(state, place):
        return f"The {place} is closed."
    seen = _list(list_seen(house, state))
    can_open = kind_of(place) in OPENABLE
    return f"The {place} is open. In it, you see {seen}." if can_open else f"On the {place}, you see {seen}."


def _examine_full(state: State, thing: str) -> str:
    has = {quality for name, quality in state.has if name == thing}
    if not has:
        return f"There's nothing special about {thing}."
    if "clean" in has and len(has) == 2:
        return f"This is a {'hot' if 'hot' in has else 'cool'} and clean {thing}."
    return f"This is a {has.pop()} {thing}."


# ------------------------------------------------------------------------------------------------ terse

_TERSE_OUTCOMES: Mapping[Verb, str] = {
    "close": "{place} shut",
    "take": "got {thing}",
    "put": "{place} {thing}",
    "use": "lit {thing}",
}
_ALONE: frozenset[Verb] = frozenset({"open", "close", "put", "clean", "heat", "cool", "use", "look", "inventory"})
"""Verbs that need no name where one stands and with what one holds."""


def _short(name: str) -> str:
    return name.removesuffix(" 1")


def _open_terse(house: House) -> str:
    return f" {' '.join(map(_short, house.places))}{_remind_terse(house)}"


def _remind_terse(house: House) -> str:
    return f" : {' '.join(filter(None, (house.kind, house.wanted, house.target)))}"


def _command_terse(action: Action) -> str:
    if action.verb in _ALONE:
        return action.verb
    return f"{action.verb} {_short(action.thing or action.place)}"


def _read_terse(house: House, state: State, text: str) -> Action | None:
    match text.lower().split():
        case ["look" | "inventory" as verb]:
            return Action(verb)  # type: ignore[arg-type]
        case ["open" | "close" as verb]:
            return Action(verb, place=state.at)  # type: ignore[arg-type]
        case ["put" | "clean" | "heat" | "cool" as verb]:
            return Action(verb, find_held(house, state), state.at)  # type: ignore[arg-type]
        case ["use"]:
            lamps = [thing for thing in house.things if kind_of(thing) == LAMP]
            return Action("use", thing=lamps[0]) if lamps else None
        case ["go" | "take" | "examine" as verb, kind, *number]:
            name = " ".join([kind, *(number or ["1"])])
            if verb == "take":
                return Action("take", name, state.at)
            is_place = verb == "go" or name in house.places
            return Action(verb, place=name) if is_place else Action(verb, thing=name)  # type: ignore[arg-type]
    return None


def _report_terse(house: House, state: State, action: Action) -> str:
    verb, thing, place = action
    match verb:
        case "look":
            return f" {_short(state.at)}" if state.at else f" {' '.join(map(_short, house.places))}"
        case "inventory":
            return f" {_short(find_held(house, state)) or 'nothing'}"
        case "go" | "open":
            return _inside_terse(house, state)
        case "examine" if place:
            return _inside_terse(house, state)
        case "examine" | "clean" | "heat" | "cool":
            has = " ".join(each for each in _QUALITIES if (thing, each) in state.has)
            return f" {has or 'plain'} {_short(thing)}"
    return f" {_TERSE_OUTCOMES[verb].format(thing=_short(thing), place=_short(place))}"


def _inside_terse(house: House, state: State) -> str:
    if not is_open(state, state.at):
        return f" {_short(state.at)} shut"
    return f" {' '.join((_short(state.at), *map(_short, list_seen(house, state) or ('nothing',))))}"


STYLES: Mapping[StyleName, Style] = {
    "full": Style(
        open=_open_full,
        remind=_remind_full,
        command=_command_full,
        read=_read_full,
        report=_report_full,
        nothing="Nothing happens.",
    ),
    "terse": Style(
        open=_open_terse,
        remind=_remind_terse,
        command=_command_terse,
        read=_read_terse,
        report=_report_terse,
        nothing=" no",
    ),
}
