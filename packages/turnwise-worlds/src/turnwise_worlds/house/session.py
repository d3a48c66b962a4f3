"""A house in use: commands as texts, what is said of them, and what is known by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise_worlds.house.arguments import HouseArguments
from turnwise_worlds.house.catalog import BELONGS, CHANGES, kind_of
from turnwise_worlds.house.generate import make_house
from turnwise_worlds.house.styles import BLANK, STYLES, Style
from turnwise_worlds.house.world import Action, House, State, act, find_held, is_done, is_open, is_ready, is_wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An episode after some commands."""

    chosen: HouseArguments
    house: House
    state: State
    seen: frozenset[str] = frozenset()
    """Places whose inside was seen."""
    steps: int = 0
    """Commands so far, impossible ones included."""
    heard: str = ""
    """What was said of the last command."""
    signals: tuple[tuple[str, float], ...] = ()
    """What the last command was like; see `_judge`."""

    @staticmethod
    def open(payload: Mapping[str, Any], chosen: HouseArguments) -> Session:
        """Return the session of a task before any command."""
        house, state = make_house(
            payload["kind"], int(payload["seed"]), places=chosen.places, things=chosen.things, belongs=chosen.belongs
        )
        return Session(chosen=chosen, house=house, state=state)

    @property
    def style(self) -> Style:
        """The words of the episode."""
        return STYLES[self.chosen.style]

    @property
    def shown(self) -> str:
        """The answer to the last command: what was said of it, and the task again if that is chosen."""
        return self.heard + (self.style.remind(self.house) if self.chosen.remind else "")

    @property
    def is_done(self) -> bool:
        """Whether the task is fulfilled."""
        return is_done(self.house, self.state)

    @property
    def is_over(self) -> bool:
        """Whether the episode ends here."""
        return self.is_done or self.steps == self.chosen.max_steps

    def command(self, text: str) -> Session:
        """Return the session after a command; anything that is none, or impossible, is a step in which nothing
        happens."""
        action = self.style.read(self.house, self.state, text)
        done = None if action is None else self._redirect(action)
        state = None if done is None else act(self.house, self.state, done)
        heard = self.style.nothing if state is None or done is None else self.style.report(self.house, state, done)
        session = replace(
            self,
            state=state or self.state,
            steps=self.steps + 1,
            heard=BLANK if self.chosen.observations == "blank" else heard,
            signals=() if state is None or done is None else self._judge(done),
        )
        at = session.state.at
        return replace(session, seen=self.seen | {at}) if at and is_open(session.state, at) else session

    def _redirect(self, action: Action) -> Action:
        """Return what is done when an action is said: under shuffled names `go` leads to the next place of the list."""
        places = self.house.places
        if self.chosen.names == "own" or action.verb != "go" or action.place not in places:
            return action
        return action._replace(place=places[(places.index(action.place) + 1) % len(places)])

    def _judge(self, action: Action) -> tuple[tuple[str, float], ...]:
        """Measure an action that is possible.

        "looks_where_it_belongs", of the first `go`: whether the thing that the task names belongs there.
        "looks_again", of a `go` while nothing is held: whether one has seen what is in that place. "is_prepared", of a
        `put` of a wanted thing at the target, for the kinds that change it: whether it is as the task wants it.
        """
        house, state = self.house, self.state
        held = find_held(house, state)
        if action.verb == "go":
            first = () if state.at else (("looks_where_it_belongs", _is_home(house, action.place)),)
            return first if held else (*first, ("looks_again", float(action.place in self.seen)))
        is_last = action.verb == "put" and is_wanted(house, held) and kind_of(action.place) == house.target
        return (("is_prepared", float(is_ready(house, state, held))),) if is_last and house.kind in CHANGES else ()


def _is_home(house: House, place: str) -> float:
    return float(kind_of(place) in BELONGS[house.wanted])
