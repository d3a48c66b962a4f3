"""The next action of somebody who knows where everything is, in every state that can be reached."""

from __future__ import annotations

from turnwise_worlds.house.catalog import CHANGES, LAMP, kind_of
from turnwise_worlds.house.world import (
    Action,
    House,
    State,
    count_placed,
    find_held,
    is_done,
    is_open,
    is_ready,
    is_wanted,
    list_targets,
)


def plan_action(house: House, state: State) -> Action:
    """Return an action that leads on to the goal. Raises ValueError where the task is fulfilled.

    What is held and not wanted is put down where one stands, or at the first place; but what is wanted comes first.
    """
    if is_done(house, state):
        raise ValueError("the task is fulfilled; plan before it is")
    held = find_held(house, state)
    if not held:
        thing = _choose_thing(house, state)
        place = state.where[house.things.index(thing)]
        return _reach(state, place, Action("take", thing, place))
    if not is_wanted(house, held):
        place = state.at or house.places[0]
        return _reach(state, place, Action("put", held, place))
    if house.kind == "light":
        lamp = next(thing for thing in house.things if kind_of(thing) == LAMP)
        place = state.where[house.things.index(lamp)]
        return Action("use", thing=lamp) if state.at == place else Action("go", place=place)
    if not is_ready(house, state, held):
        place = next(place for place in house.places if kind_of(place) == CHANGES[house.kind][0])
        action = Action(house.kind, held, place)  # type: ignore[arg-type]
        return action if state.at == place else Action("go", place=place)
    place = _choose_target(house, state)
    return _reach(state, place, Action("put", held, place))


def measure_progress(house: House, state: State) -> float:
    """Return the share of the task's steps that are done, in [0, 1]: a thing is held or placed, it is as the task wants
    it, it is placed. The potential of a state."""
    if is_done(house, state):
        return 1.0
    held = find_held(house, state)
    has_it = bool(held) and is_wanted(house, held)
    if house.kind == "light":
        return (has_it + bool(state.lit)) / 3
    placed = max(count_placed(house, state, place) for place in list_targets(house))
    if house.kind == "two":
        return (2 * placed + has_it) / 4
    if house.kind == "put":
        return has_it / 2
    return (has_it + (has_it and is_ready(house, state, held))) / 3


def _reach(state: State, place: str, action: Action) -> Action:
    """Return the action, or what must be done before it: go there, open it."""
    if state.at != place:
        return Action("go", place=place)
    return action if is_open(state, place) else Action("open", place=place)


def _choose_thing(house: House, state: State) -> str:
    """Return a wanted thing that is not where it must be in the end."""
    target = _choose_target(house, state) if house.target else ""
    left = [
        thing
        for thing, place in zip(house.things, state.where, strict=True)
        if is_wanted(house, thing) and not (place == target and is_ready(house, state, thing))
    ]
    return next((thing for thing in left if state.where[house.things.index(thing)] == state.at), left[0])


def _choose_target(house: House, state: State) -> str:
    """Return the place to fill: the one with the most things already, then the one where one stands."""
    return max(list_targets(house), key=lambda place: (count_placed(house, state, place), place == state.at))
