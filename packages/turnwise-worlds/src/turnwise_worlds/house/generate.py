"""Draws a house in which a task of some kind can be done."""

from __future__ import annotations

from functools import lru_cache
from random import Random

from turnwise.core.seeds import rng
from turnwise_worlds.house.catalog import BELONGS, CHANGES, LAMP, PLACES, kind_of
from turnwise_worlds.house.world import House, Kind, State

FEWEST_PLACES = 4
"""Places that a task can need: where a thing belongs, where it must come to, where it is changed, and one more."""


@lru_cache(maxsize=4096)  # scripted policies ask again at every reply
def make_house(kind: Kind, seed: int, *, places: int, things: int, belongs: float) -> tuple[House, State]:
    """Draw a house and its first state, in which the task is not fulfilled.

    Args:
        places: How many places there are, at least `FEWEST_PLACES`. Kinds are repeated when all have been used.
        things: How many things lie about besides those that the task needs, each of another kind.
        belongs: The probability with which a thing lies where it belongs, if the house has such a place; else it lies
            at any other.
    """
    random = rng(seed, "house", kind)
    tool, allowed = CHANGES[kind][:2] if kind in CHANGES else ("", frozenset(BELONGS) - {LAMP})
    wanted = random.choice(sorted(allowed))
    home = random.choice(BELONGS[wanted])
    lamp = random.choice(BELONGS[LAMP]) if kind == "light" else ""
    target = "" if lamp else random.choice([place for place in PLACES if place not in (*BELONGS[wanted], tool)])
    names = _draw_places(random, {home, lamp, target, tool} - {""}, places)
    others = random.sample(sorted(BELONGS.keys() - {wanted, LAMP}), min(things, len(BELONGS) - 2))
    listed = [wanted, *[wanted] * (kind == "two"), *others, *[LAMP] * bool(lamp)]
    numbered = _number(sorted(listed))
    house = House(kind=kind, wanted=wanted, target=target, places=names, things=numbered)
    where = tuple(
        _draw_place(random, kind_of(thing), names, belongs, target if kind_of(thing) == wanted else "")
        for thing in numbered
    )
    return house, State(where=where)


def _draw_places(random: Random, needed: set[str], count: int) -> tuple[str, ...]:
    kinds = sorted(needed)
    while len(kinds) < count:
        unused = [kind for kind in PLACES if kind not in kinds] or list(PLACES)
        kinds += random.sample(unused, min(count - len(kinds), len(unused)))
    return _number(sorted(kinds, key=PLACES.index))


def _number(kinds: list[str]) -> tuple[str, ...]:
    return tuple(f"{kind} {1 + kinds[:index].count(kind)}" for index, kind in enumerate(kinds))


def _draw_place(random: Random, thing: str, places: tuple[str, ...], belongs: float, excluded: str) -> str:
    """Draw where a thing lies, not at the excluded kind of place."""
    homes = [place for place in places if kind_of(place) in BELONGS[thing]]
    others = [place for place in places if place not in homes and kind_of(place) != excluded]
    return random.choice(homes if homes and (not others or random.random() < belongs) else others)
