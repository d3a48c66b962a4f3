"""Games for ALFWorld's engine, generated from seeds: a room of a house with its receptacles and things, and one of
ALFWorld's six kinds of tasks, as the PDDL problem that ALFWorld's domain reads.

What lies where, can be heated, cleaned, cooled or switched, the goals and the sentences that ask for them are
ALFWorld's own (`alfworld.gen`). ALFWorld's published games come from rooms of AI2-THOR and are not part of its package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from turnwise.core.errors import ConfigError

Kind = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""ALFWorld's kinds of tasks, by its names."""

ROOMS: Mapping[str, Sequence[str]] = {
    "kitchen": (
        "Fridge",
        "Microwave",
        "SinkBasin",
        "CounterTop",
        "StoveBurner",
        "DiningTable",
        "GarbageCan",
        "CoffeeMachine",
    ),
    "bedroom": ("Bed", "Desk", "Dresser", "SideTable", "GarbageCan", "Safe"),
    "living room": ("Sofa", "ArmChair", "CoffeeTable", "SideTable", "TVStand", "GarbageCan", "Safe"),
    "bathroom": ("SinkBasin", "CounterTop", "Toilet", "GarbageCan", "BathtubBasin"),
}
"""Receptacles of which a room has one each."""
REPEATED: Mapping[str, Sequence[str]] = {
    "kitchen": ("Cabinet", "Drawer", "Shelf"),
    "bedroom": ("Drawer", "Shelf"),
    "living room": ("Drawer", "Shelf"),
    "bathroom": ("Cabinet", "Drawer"),
}
"""Receptacles of which a room has several."""
THINGS: Mapping[str, Sequence[str]] = {
    "kitchen": (
        "Apple",
        "Tomato",
        "Potato",
        "Lettuce",
        "Bread",
        "Egg",
        "Mug",
        "Cup",
        "Plate",
        "Bowl",
        "Fork",
        "Spoon",
        "Knife",
        "ButterKnife",
        "Spatula",
        "Pan",
        "Pot",
        "SaltShaker",
        "PepperShaker",
        "DishSponge",
    ),
    "bedroom": (
        "Book",
        "Pen",
        "Pencil",
        "CellPhone",
        "CD",
        "AlarmClock",
        "KeyChain",
        "CreditCard",
        "Laptop",
        "Pillow",
        "Mug",
        "Bowl",
    ),
    "living room": (
        "Book",
        "Newspaper",
        "RemoteControl",
        "KeyChain",
        "CreditCard",
        "Laptop",
        "Pillow",
        "Box",
        "Vase",
        "Statue",
        "Watch",
    ),
    "bathroom": ("SoapBar", "SoapBottle", "Cloth", "ToiletPaper", "SprayBottle", "Candle", "DishSponge"),
}
"""Things that lie about in a room."""
LAMP = "DeskLamp"
_STATES: Mapping[Kind, str] = {
    "pick_clean_then_place_in_recep": "Cleanable",
    "pick_heat_then_place_in_recep": "Heatable",
    "pick_cool_then_place_in_recep": "Coolable",
}
_STATIONS = {"Cleanable": "SinkBasin", "Heatable": "Microwave", "Coolable": "Fridge"}
_ADVERBS = {"Cleanable": "cleanable", "Heatable": "heatable", "Coolable": "coolable", "Toggleable": "toggleable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A room and a task in it."""

    kind: Kind
    receptacles: tuple[str, ...]
    """Types, one entry per receptacle."""
    things: tuple[tuple[str, int], ...]
    """Type and the number of the receptacle where it lies."""
    target: str
    """Type of the thing that is asked for."""
    destination: str
    """Type of the receptacle where it must go; the type of the lamp for `look_at_obj_in_light`."""


def build_house(kind: Kind, random: Random, *, copies: int, num_things: int) -> House:
    """Draw a room and a task of this kind that is not solved yet, with `copies` of repeated receptacles and at least
    `num_things` things. Raises ConfigError if no room has one."""
    from alfworld.gen.constants import VAL_ACTION_OBJECTS, VAL_RECEPTACLE_OBJECTS

    wanted = _STATES.get(kind)
    for _ in range(200):
        room = random.choice(sorted(ROOMS))
        receptacles = (*ROOMS[room], *(name for name in REPEATED[room] for _ in range(copies)))
        holders = {
            name: [at for at, r in enumerate(receptacles) if name in VAL_RECEPTACLE_OBJECTS[r]] for name in THINGS[room]
        }
        able = [name for name in THINGS[room] if not wanted or name in VAL_ACTION_OBJECTS[wanted]]
        if not able or (wanted and _STATIONS[wanted] not in receptacles):
            continue
        target = random.choice(able)
        destination = LAMP
        if kind != "look_at_obj_in_light":
            types = sorted({receptacles[at] for at in holders[target]})
            if not types:
                continue
            destination = random.choice(types)
        starts = [at for at in holders[target] if receptacles[at] != destination]
        if not starts:
            continue
        count = 2 if kind == "pick_two_obj_and_place" else random.choice((1, 1, 2))
        things = [(target, random.choice(starts)) for _ in range(count)]
        others = [name for name in THINGS[room] if name != target and holders[name]]
        while len(things) < num_things:
            name = random.choice(others)
            things.append((name, random.choice(holders[name])))
        if kind == "look_at_obj_in_light":
            lamps = [at for at, r in enumerate(receptacles) if r in ("Desk", "SideTable", "Dresser")]
            if not lamps:
                continue
            things.append((LAMP, random.choice(lamps)))
        return House(kind=kind, receptacles=receptacles, things=tuple(things), target=target, destination=destination)
    raise ConfigError(f"no room has a task of kind {kind} after 200 draws; leave the kind out")


def write_problem(house: House) -> str:
    """Return the PDDL problem. Names are such that ALFWorld's engine shows `fridge 1`, `apple 2`."""
    from alfworld.gen.constants import (
        MOVABLE_RECEPTACLES_SET,
        OPENABLE_CLASS_SET,
        VAL_ACTION_OBJECTS,
        VAL_RECEPTACLE_OBJECTS,
    )

    receptacles = [_name_receptacle(kind, number) for number, kind in enumerate(house.receptacles)]
    things = [f"{kind}_bar_{number}" for number, (kind, _) in enumerate(house.things)]
    places = [f"loc_bar_{number}" for number in range(len(receptacles))]
    thing_types, receptacle_types = sorted({kind for kind, _ in house.things}), sorted(set(house.receptacles))
    start = f"loc_bar_{len(receptacles)}"
    objects = [
        "agent1 - agent",
        *(f"{name} - receptacle" for name in receptacles),
        *(f"{name} - object" for name in things),
        *(f"{place} - location" for place in (*places, start)),
        *(f"{kind}Type - otype" for kind in thing_types),
        *(f"{kind}Type - rtype" for kind in receptacle_types),
    ]
    facts = ["(= (total-cost) 0)", f"(atLocation agent1 {start})"]
    for name, kind, place in zip(receptacles, house.receptacles, places, strict=True):
        facts += [f"(receptacleType {name} {kind}Type)", f"(receptacleAtLocation {name} {place})"]
        facts += [f"(openable {name})"] if kind in OPENABLE_CLASS_SET else []
    for name, (kind, at) in zip(things, house.things, strict=True):
        facts += [f"(objectType {name} {kind}Type)", f"(inReceptacle {name} {receptacles[at]})"]
        facts += [f"(wasInReceptacle {name} {receptacles[at]})", f"(objectAtLocation {name} {places[at]})"]
        facts += [f"(pickupable {name})"] if kind != LAMP else []
        facts += [f"({_ADVERBS[way]} {name})" for way in _ADVERBS if kind in VAL_ACTION_OBJECTS[way]]
        facts += [f"(isReceptacleObject {name})"] if kind in MOVABLE_RECEPTACLES_SET else []
    facts += [
        f"(canContain {holder}Type {kind}Type)"
        for holder in receptacle_types
        for kind in thing_types
        if kind in VAL_RECEPTACLE_OBJECTS[holder]
    ]
    lines = "\n        "
    return (
        "(define (problem turnwise)\n    (:domain alfred)\n"
        f"    (:objects{lines}{lines.join(objects)}\n    )\n    (:init{lines}{lines.join(facts)}\n    )\n"
        f"{_write_goal(house)}\n    (:metric minimize (total-cost))\n)\n"
    )


def _name_receptacle(kind: str, number: int) -> str:
    """Return the name of a receptacle; the engine shows a basin by the thing around it, `sinkbasin 1`."""
    return f"{kind.removesuffix('Basin')}_bar_{number}" + ("_bar_basin" if kind.endswith("Basin") else "")


def _write_goal(house: House) -> str:
    from alfworld.gen.goal_library import gdict

    names = {"obj": house.target, "recep": house.destination, "toggle": house.destination, "mrecep": ""}
    goal = str(gdict[house.kind]["pddl"]).replace("#", "-").format(**names)
    return goal.rstrip().removesuffix(")")  # its last bracket ends the problem


def write_request(house: House, random: Random) -> str:
    """Return one of ALFWorld's sentences that ask for the task."""
    from alfworld.gen.goal_library import gdict

    names = {"obj": house.target, "recep": house.destination, "toggle": house.destination, "mrecep": ""}
    return str(random.choice(gdict[house.kind]["templates"])).format(**{k: v.lower() for k, v in names.items()})


def write_game(house: House, random: Random) -> dict[str, object]:
    """Return a game as in ALFWorld's files `game.tw-pddl`: domain, grammar with the request, problem."""
    from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

    with open(ALFRED_PDDL_PATH, encoding="utf-8") as domain, open(ALFRED_TWL2_PATH, encoding="utf-8") as grammar:
        return {
            "pddl_domain": domain.read(),
            "grammar": grammar.read().replace("UNKNOWN GOAL", write_request(house, random)),
            "pddl_problem": write_problem(house),
        }
