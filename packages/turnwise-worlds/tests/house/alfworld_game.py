"""A house as a game for ALFWorld's own engine: a problem in PDDL for the domain of its package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnwise_worlds.house.catalog import CHANGES, LAMP, OPENABLE, kind_of
from turnwise_worlds.house.world import House, State

_ABLE = {"heat": "heatable", "cool": "coolable", "clean": "cleanable"}
_IS = {"heat": "isHot", "cool": "isCool", "clean": "isClean"}


def build_game(house: House, state: State) -> Any:
    """ALFWorld's engine at the first state of a house; `reset()` returns what it says first."""
    import alfworld
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs import PddlEnv

    data = Path(alfworld.__file__).parent / "data"
    game = AlfredDemangler(PddlEnv(textworld.EnvInfos(admissible_commands=True, won=True)))
    game.load(
        {
            "pddl_domain": (data / "alfred.pddl").read_text(),
            "grammar": (data / "alfred.twl2").read_text(),
            "pddl_problem": write_problem(house, state),
        }
    )
    return game


def write_problem(house: House, state: State) -> str:
    """The first state and the goal."""
    things, places = ({name: _identify(name, names) for name in names} for names in (house.things, house.places))
    kinds = sorted({"butterknife", "knife", *map(kind_of, house.things)})
    rooms = sorted({"fridge", "microwave", "sinkbasin", *map(kind_of, house.places)})
    declared = [
        "agent1 - agent",
        "middle - location",
        *(f"at_{place} - location" for place in places.values()),
        *(f"{place} - receptacle" for place in places.values()),
        *(f"{thing} - object" for thing in things.values()),
        *(f"{kind}Type - otype" for kind in kinds),
        *(f"{kind}Type - rtype" for kind in rooms),
    ]
    facts = ["(= (total-cost) 0)", "(atLocation agent1 middle)"]
    for name, place in places.items():
        kind = kind_of(name)
        facts += [f"(receptacleAtLocation {place} at_{place})", f"(receptacleType {place} {kind}Type)"]
        facts += [f"(openable {place})"] if kind in OPENABLE else []
    facts += [f"(canContain {room}Type {kind}Type)" for room in rooms for kind in kinds]
    for (name, thing), at in zip(things.items(), state.where, strict=True):
        kind, place = kind_of(name), places[at]
        facts += [f"(objectType {thing} {kind}Type)", f"(inReceptacle {thing} {place})"]
        facts += [f"(objectAtLocation {thing} at_{place})", f"({_can(kind)} {thing})"]
        facts += [f"({_ABLE[verb]} {thing})" for verb, (_, allowed, _) in CHANGES.items() if kind in allowed]
    return (
        f"(define (problem house) (:domain alfred) (:objects {' '.join(declared)})\n(:init {' '.join(facts)})\n"
        f"(:goal {_write_goal(house)})\n(:metric minimize (total-cost)))"
    )


def _can(kind: str) -> str:
    return "toggleable" if kind == LAMP else "pickupable"


def _write_goal(house: House) -> str:
    wanted = f"(objectType ?o {house.wanted}Type)"
    if house.kind == "light":
        return (
            "(exists (?t - object ?r - receptacle ?l - location ?o - object) (and "
            f"(objectType ?t {LAMP}Type) (isToggled ?t) (inReceptacle ?t ?r) (receptacleAtLocation ?r ?l) "
            f"(atLocation agent1 ?l) (holds agent1 ?o) {wanted}))"
        )
    placed = f"(receptacleType ?r {house.target}Type) {wanted} (inReceptacle ?o ?r)"
    if house.kind == "two":
        other = f"(objectType ?p {house.wanted}Type) (inReceptacle ?p ?r) (not (= ?o ?p))"
        return f"(exists (?r - receptacle ?o - object ?p - object) (and {placed} {other}))"
    ready = f"({_IS[house.kind]} ?o)" if house.kind in _IS else ""
    return f"(exists (?r - receptacle ?o - object) (and {placed} {ready}))"


def _identify(name: str, names: tuple[str, ...]) -> str:
    """The identifier that ALFWorld shows as `name`: it numbers a kind's identifiers from the last in the alphabet, and
    writes `sinkbasin` where it finds `sink` and `basin`."""
    kind, number = name.split()
    count = sum(kind_of(each) == kind for each in names)
    kind = kind.replace("sinkbasin", "sink_bar_basin")
    return f"{kind}_bar_{count - int(number):02d}"
