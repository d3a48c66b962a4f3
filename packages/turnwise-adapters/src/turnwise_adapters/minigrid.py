"""MiniGrid as text: the mission, and the player's own view of 7 by 7 cells, described relative to the player (ahead, to
the side).

The view is exactly the environment's partial observation; walls are named where they block the way, empty and unseen
cells are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from pydantic import Field, JsonValue

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.packages import require_package
from turnwise.environments.arguments import read_arguments
from turnwise_adapters.experts import find_plan
from turnwise_adapters.game_family import GameArguments, GameFamily
from turnwise_adapters.text_game import Outcome, TextGame

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
"""Actions by number, as in `minigrid.core.actions.Actions`: turn left, turn right, move forward, and so on."""

_FORWARD = ACTIONS.index("forward")
_PLAIN = ("unseen", "empty", "floor", "wall")


class MiniGridArguments(GameArguments):
    """Which environment."""

    id: str
    """Id for `gymnasium.make`, such as "MiniGrid-DoorKey-5x5-v0"."""
    make: dict[str, JsonValue] = Field(default_factory=dict)
    """Further keyword arguments of `gymnasium.make`."""
    actions: list[str] = Field(default_factory=lambda: list(ACTIONS))
    """Available actions; with fewer, a random walk succeeds more often."""


class MiniGridGame(TextGame):
    """One episode."""

    def __init__(self, chosen: MiniGridArguments) -> None:
        """See `MiniGridArguments`."""
        self._chosen = chosen
        self._env: Any = None
        self._plan: deque[int] | None = None

    def open(self, seed: int) -> str:
        """Make the environment and reset it. Raises ConfigError if it is unknown."""
        import gymnasium
        import minigrid  # noqa: F401 - registers its environments

        with boundary(ConfigError, f"gymnasium cannot make {self._chosen.id!r}"):
            self._env = gymnasium.make(self._chosen.id, disable_env_checker=True, **self._chosen.make)
        observation, _ = self._env.reset(seed=seed)
        return f"Mission: {observation['mission']}\n{self._look(observation)}"

    def _look(self, observation: Any) -> str:
        carried = self._env.unwrapped.carrying
        held = f"You carry a {carried.color} {carried.type}.\n" if carried is not None else ""
        return held + describe_view(observation["image"].tolist())

    def legal_actions(self) -> Sequence[str]:
        """Return the available actions; actions without effect are legal."""
        return self._chosen.actions

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. The reward is the environment's, which decreases with the number of steps."""
        number = ACTIONS.index(action)
        if self._plan and self._plan[0] == number:
            self._plan.popleft()
        else:
            self._plan = None
        observation, reward, terminated, truncated, _ = self._env.step(number)
        done, won = bool(terminated or truncated), bool(terminated) and float(reward) > 0
        return Outcome(text=self._look(observation), reward=float(reward), done=done, won=won)

    def expert_action(self) -> str | None:
        """Return the first step of a shortest path to a reward, by breadth-first search over copies of the
        environment."""
        if not self._plan:
            self._plan = find_plan(
                self._env.unwrapped, [ACTIONS.index(name) for name in self._chosen.actions], _FORWARD
            )
        return ACTIONS[self._plan[0]] if self._plan else None

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()


def describe_view(image: Sequence[Sequence[Sequence[int]]]) -> str:
    """Describe the observation's `[width, height, 3]` cells (kind, colour, state), one line per visible thing, nearest
    first.

    The player stands in the middle of the last row and looks up.
    """
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

    states = {number: name for name, number in STATE_TO_IDX.items()}
    width, height = len(image), len(image[0])
    seen: list[tuple[int, int, str]] = []
    for x, column in enumerate(image):
        for y, (kind, colour, state) in enumerate(column):
            name, ahead, right = IDX_TO_OBJECT[kind], height - 1 - y, x - width // 2
            if name not in _PLAIN and (ahead, right) != (0, 0):
                door = f"{states[state]} " if name == "door" else ""
                seen.append((ahead, right, f"{door}{IDX_TO_COLOR[colour]} {name}"))
    middle = image[width // 2]
    walls = (far for far in range(1, height) if IDX_TO_OBJECT[middle[height - 1 - far][0]] == "wall")
    wall = next(walls, None)
    seen.sort(key=lambda place: abs(place[0]) + abs(place[1]))
    first = f"wall: {wall} ahead" if wall is not None else "wall: none ahead"
    return "\n".join([first, *(f"{thing}: {_place(ahead, right)}" for ahead, right, thing in seen)])


def _place(ahead: int, right: int) -> str:
    side = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    return " ".join(part for part in (f"{ahead} ahead" if ahead else "", side) if part)


class MiniGrid(GameFamily):
    """Implements `EnvironmentFamily`."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `MiniGridArguments`. Raises ConfigError."""
        chosen = read_arguments(MiniGridArguments, arguments)
        require_package("minigrid", "3.0", "minigrid")
        if not chosen.actions or set(chosen.actions) - set(ACTIONS):
            raise ConfigError(f"actions={list(chosen.actions)}: use one or more of {', '.join(ACTIONS)}")
        super().__init__("minigrid", chosen.id, chosen, lambda: MiniGridGame(chosen))
