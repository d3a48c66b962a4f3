"""Gymnasium's environments with one discrete action, as text: FrozenLake, Taxi, CliffWalking, Blackjack and others.

The player sees the `ansi` rendering if there is one, otherwise the observation's numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from pydantic import Field, JsonValue

from turnwise.core.errors import ConfigError, EnvironmentFault, boundary
from turnwise.core.packages import require_package
from turnwise.environments.arguments import read_arguments
from turnwise_adapters.drawings import space_out, write_colours
from turnwise_adapters.experts import solve_table
from turnwise_adapters.game_family import GameArguments, GameFamily
from turnwise_adapters.text_game import Outcome, TextGame

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
}
"""Names of the actions, by the environment's name without its version; the actions of other environments are
numbers."""


class GymnasiumArguments(GameArguments):
    """Which environment, and how it is drawn."""

    id: str
    """Id for `gymnasium.make`."""
    make: dict[str, JsonValue] = Field(default_factory=dict)
    """Further keyword arguments of `gymnasium.make`."""
    map_size: int = Field(0, ge=0, le=64)
    """FrozenLake only: every seed has a random map with this many rows and columns; 0 keeps the environment's map."""
    spaced: bool = False
    """Whether a drawing has spaces between its characters and "@" for the player, which makes every cell one token."""
    win_reward: float = 0.0
    """The game is won when it ends and its last reward is above this."""


class GymnasiumGame(TextGame):
    """One episode."""

    def __init__(self, chosen: GymnasiumArguments) -> None:
        """See `GymnasiumArguments`."""
        self._chosen = chosen
        self._env: Any = None
        self._state: Any = None
        self._mask: dict[int, bool] | None = None
        self._values: dict[int, int] | None = None

    def open(self, seed: int) -> str:
        """Make the environment and reset it. Raises ConfigError if it is unknown or its actions are not a discrete
        list."""
        import gymnasium

        chosen = self._chosen
        options: dict[str, Any] = dict(chosen.make)
        with boundary(ConfigError, f"gymnasium cannot make {chosen.id!r}"):
            if chosen.map_size:
                from gymnasium.envs.toy_text.frozen_lake import generate_random_map

                options["desc"] = generate_random_map(size=chosen.map_size, seed=seed)
            if _draws_text(chosen.id, json.dumps(options)):  # a class that draws nothing need not take the argument
                options["render_mode"] = "ansi"
            self._env = gymnasium.make(chosen.id, **options)
        if not isinstance(self._env.action_space, gymnasium.spaces.Discrete):
            raise ConfigError(
                f"{chosen.id}: its actions are {self._env.action_space}; the adapter supports only Discrete ones: "
                "register a version with a gymnasium.ActionWrapper that numbers them, or write a plain class with the "
                "actions as a tool's arguments"
            )
        start, count = int(self._env.action_space.start), int(self._env.action_space.n)
        numbers = range(start, start + count)
        names = ACTIONS.get(chosen.id.rpartition("/")[2].partition("-")[0], ())
        self._names = dict(zip(names if len(names) == count else map(str, numbers), numbers, strict=True))
        self._state, info = self._read("reset", self._env.reset(seed=seed), ("observation", "info"))
        self._mask = self._read_mask(info)
        return self._look()

    def _read(self, method: str, result: Any, fields: Sequence[str]) -> tuple[Any, ...]:
        """What a method returned. Raises EnvironmentFault where it is not these values, as in gym before 0.26."""
        if not isinstance(result, tuple) or len(result) != len(fields):
            count = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise EnvironmentFault(f"{self._chosen.id}: {method} returns {count}; it must return ({', '.join(fields)})")
        return result

    def _read_mask(self, info: Mapping[str, Any]) -> dict[int, bool] | None:
        """Return which actions may be taken, by number; None if there is no mask. Raises EnvironmentFault for a mask of
        another length."""
        mask = info.get("action_mask")
        if mask is None:
            return None
        if len(mask) != len(self._names):
            raise EnvironmentFault(
                f"{self._chosen.id}: info['action_mask'] has {len(mask)} entries for {len(self._names)} actions"
            )
        return dict(zip(self._names.values(), map(bool, mask), strict=True))  # read as by Discrete.sample

    def _look(self) -> str:
        if self._env.render_mode != "ansi":
            return write_numbers(self._state)
        lines = [line.rstrip() for line in write_colours(self._env.render()).splitlines()]
        text = "\n".join(line for line in lines if line.strip() and not line.startswith("  ("))
        return space_out(text) if self._chosen.spaced else text

    def legal_actions(self) -> Sequence[str]:
        """Return the names of the actions, without those that `info["action_mask"]` forbids."""
        if self._mask is None:
            return tuple(self._names)
        return tuple(name for name, number in self._names.items() if self._mask[number])

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. An episode ended by the environment's own time limit is not won."""
        fields = ("observation", "reward", "terminated", "truncated", "info")
        self._state, reward, terminated, truncated, info = self._read(
            "step", self._env.step(self._names[action]), fields
        )
        self._mask = self._read_mask(info)
        return Outcome(
            text=self._look(),
            reward=float(reward),
            done=bool(terminated or truncated),
            won=bool(terminated) and float(reward) > self._chosen.win_reward,
        )

    def expert_action(self) -> str | None:
        """Return the best action by value iteration, if the environment publishes its transitions as `P`."""
        table = getattr(self._env.unwrapped, "P", None)
        if table is None:
            return None
        if self._values is None:
            self._values = solve_table(table)
        best = self._values[int(self._state)]
        return next(name for name, number in self._names.items() if number == best)

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()


@cache
def _draws_text(name: str, options: str) -> bool:
    """Whether an environment, with these options of `gymnasium.make` as JSON, has the `ansi` rendering."""
    import gymnasium

    env = gymnasium.make(name, disable_env_checker=True, **json.loads(options))
    try:
        return "ansi" in env.metadata.get("render_modes", ())
    finally:
        env.close()


def write_numbers(observation: Any) -> str:
    """Write an observation as text: numbers separated by spaces, rows and dict entries on separate lines."""
    if isinstance(observation, Mapping):
        return "\n".join(f"{key}: {write_numbers(value)}" for key, value in observation.items())
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Sequence):
        return " ".join(map(write_numbers, observation))
    if isinstance(observation, np.ndarray) and observation.ndim:
        return ("\n" if observation.ndim > 1 else " ").join(map(write_numbers, observation))
    if isinstance(observation, float | np.floating) and math.isfinite(observation):
        # As many digits as the type has, and at most three after the point.
        return np.format_float_positional(observation, precision=3, trim="-")
    return str(observation)


class Gymnasium(GameFamily):
    """Implements `EnvironmentFamily`."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `GymnasiumArguments`. Raises ConfigError."""
        chosen = read_arguments(GymnasiumArguments, arguments)
        require_package("gymnasium", "1.0", "gymnasium")
        super().__init__("gymnasium", chosen.id, chosen, lambda: GymnasiumGame(chosen))
