"""A player of Crafter that sees the whole world: the next action towards an achievement, by Crafter's own table of what
collecting, placing and making needs.

It walks shortest ways and digs where it has the tool, flees from nobody, and does not wait for plants to ripen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

Cell = tuple[int, int]
MOVES: dict[str, Cell] = {"move_left": (-1, 0), "move_right": (1, 0), "move_up": (0, -1), "move_down": (0, 1)}
_HUNTED = {"eat_cow": "Cow", "defeat_zombie": "Zombie", "defeat_skeleton": "Skeleton"}
UNKNOWN = ("eat_plant",)
"""Achievements towards which it knows no action."""


class Expert:
    """Plans in one world, as it is now."""

    def __init__(self, env: Any) -> None:
        """Reads, and never changes, this environment."""
        from crafter import constants

        self._rules = constants
        self._world, self._player = env._world, env._player

    def act(self, goal: str) -> str | None:
        """Return the next action towards an achievement; None if it sees no way."""
        verb, _, name = goal.partition("_")
        if goal in UNKNOWN:
            return None
        if goal in _HUNTED:
            return self._reach(self._is_creature(_HUNTED[goal]), "do")
        if goal == "wake_up":
            return "sleep"
        if verb == "collect":
            return self._collect(name)
        return self._use(self._rules.place[name], goal) if verb == "place" else self._make(goal)

    def _collect(self, item: str) -> str | None:
        """Return the next action towards one more of an item that lies in the world."""
        source, rule = next((m, rule) for m, rule in self._rules.collect.items() if item in rule["receive"])
        missing = self._gain(rule["require"])
        return missing if missing else self._reach(self._is_material([source]), "do")

    def _use(self, rule: Any, action: str) -> str | None:
        """Return the next action towards placing a thing."""
        return self._gain(rule["uses"]) or self._reach(self._is_material(rule["where"]), action)

    def _make(self, action: str) -> str | None:
        """Return the next action towards making a tool: what it takes, then beside the table or furnace."""
        rule = self._rules.make[action.removeprefix("make_")]
        missing = self._gain(rule["uses"])
        if missing:
            return missing
        near, _ = self._world.nearby(self._player.pos, 1)
        for station in rule["nearby"]:
            if station not in near:
                way = self._reach(self._is_material([station]), "noop")
                return way if way not in (None, "noop") else self._use(self._rules.place[station], f"place_{station}")
        return action

    def _gain(self, needs: dict[str, int]) -> str | None:
        """Return the next action towards the first item of which there are too few; None if there are enough."""
        for item, count in needs.items():
            if self._player.inventory[item] < count:
                return self._make(f"make_{item}") if item in self._rules.make else self._collect(item)
        return None

    def _is_material(self, materials: list[str]) -> Callable[[Cell], bool]:
        def test(cell: Cell) -> bool:
            material, creature = self._world[cell]
            return creature is None and material in materials

        return test

    def _is_creature(self, kind: str) -> Callable[[Cell], bool]:
        return lambda cell: type(self._world[cell][1]).__name__ == kind

    def _is_open(self, cell: Cell) -> bool:
        """Whether the player can walk or dig there."""
        material, creature = self._world[cell]
        if creature is not None or material is None:
            return False
        rule = self._rules.collect.get(material)
        digs = rule and material != "water" and all(self._player.inventory[k] >= v for k, v in rule["require"].items())
        return material in self._rules.walkable or bool(digs)

    def _reach(self, is_wanted: Callable[[Cell], bool], action: str) -> str | None:
        """Return the first action of a shortest way to face a wanted cell, `action` if it is faced; None if there is no
        way. The search is over places and directions: a move towards what is in the way only turns."""
        here, facing = (int(self._player.pos[0]), int(self._player.pos[1])), tuple(self._player.facing)
        queue: deque[tuple[Cell, Cell, str]] = deque([(here, facing, "")])
        met = {(here, facing)}
        while queue:
            (x, y), (dx, dy), first = queue.popleft()
            if is_wanted((x + dx, y + dy)):
                return first or action
            for move, (mx, my) in MOVES.items():
                ahead = (x + mx, y + my)
                state = (ahead if self._is_open(ahead) else (x, y), (mx, my))
                if state not in met:
                    met.add(state)
                    queue.append((*state, first or self._step(move, ahead, facing)))
        return None

    def _step(self, move: str, ahead: Cell, facing: Cell) -> str:
        """Return the action that starts a move: what must be dug away is faced first."""
        digs = self._is_open(ahead) and self._world[ahead][0] not in self._rules.walkable
        return "do" if digs and MOVES[move] == facing else move
