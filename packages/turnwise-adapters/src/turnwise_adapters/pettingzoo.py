"""PettingZoo's turn-based (AEC) environments as text; one agent learns, the others play random legal actions.

Tic-tac-toe and Connect Four are drawn as boards, others by their `ansi` rendering if they have one; the rest show the
observation's numbers, all that PettingZoo offers (OpenSpiel has text for most of these games).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, JsonValue

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.packages import require_package
from turnwise.core.seeds import rng
from turnwise.environments.arguments import read_arguments
from turnwise_adapters.game_family import GameArguments, GameFamily
from turnwise_adapters.text_game import Outcome, TextGame

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "leduc_holdem": ("call", "raise", "fold", "check"),
    "texas_holdem": ("call", "raise", "fold", "check"),
    "rps": ("rock", "paper", "scissors"),
}
"""Names of the actions, by the module's name without its version; the actions of other environments are numbers."""


class PettingZooArguments(GameArguments):
    """Which environment, and who learns."""

    module: str
    """Module with a function `env`, such as "pettingzoo.classic.tictactoe_v3"."""
    make: dict[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of that function."""
    player: int = Field(0, ge=0)
    """Index into the environment's `possible_agents` of the agent that learns."""
    show_actions: Literal["never", "once", "always"] = "always"
    """As in `GameArguments`."""


class PettingZooGame(TextGame):
    """One episode."""

    def __init__(self, chosen: PettingZooArguments) -> None:
        """See `PettingZooArguments`."""
        self._chosen = chosen
        self._name = chosen.module.rpartition(".")[2].rpartition("_v")[0]
        self._env: Any = None

    def open(self, seed: int) -> str:
        """Make the environment and play up to the learning agent's first move. Raises ConfigError if it cannot."""
        chosen = self._chosen
        import pettingzoo  # noqa: F401 - the module below is one of its own, or built on it

        with boundary(ConfigError, f"pettingzoo cannot make {chosen.module!r} with {chosen.make}"):
            build = importlib.import_module(chosen.module).env
            self._env = build(**chosen.make)
            if "ansi" in self._env.metadata.get("render_modes", ()):
                self._env = build(**{**chosen.make, "render_mode": "ansi"})
        if chosen.player >= len(self._env.possible_agents):
            raise ConfigError(
                f"player={chosen.player}: {chosen.module} has only {len(self._env.possible_agents)} agents"
            )
        self._agent = self._env.possible_agents[chosen.player]
        self._env.reset(seed=seed)
        self._random = rng("pettingzoo", seed)
        self._run_to_move()
        self.is_over_at_once = bool(self._done)
        return "" if self.is_over_at_once else self._look()

    def _run_to_move(self) -> None:
        """Play the other agents until the learning agent moves next or no agent is left.

        `env.last` returns an agent's reward since its last move."""
        self._reward, self._done = 0.0, False
        for agent in self._env.agent_iter():
            observation, reward, terminated, truncated, info = self._env.last()
            if agent == self._agent:
                self._observation, self._reward, self._done = observation, float(reward), terminated or truncated
                self._mask = _mask_of(observation, info)
                return
            self._env.step(None if terminated or truncated else self._random.choice(self._moves(agent)))
        self._done = True

    def _moves(self, agent: str) -> list[int]:
        observation, _, _, _, info = self._env.last()
        mask = _mask_of(observation, info)
        return [n for n in range(int(self._env.action_space(agent).n)) if mask is None or mask[n]]

    def _look(self) -> str:
        draw = BOARDS.get(self._name)
        values = self._observation["observation"] if isinstance(self._observation, Mapping) else self._observation
        if draw is not None:
            return draw(values)
        if self._env.render_mode == "ansi":
            return str(self._env.render()).strip()
        return " ".join(f"{value:g}" for value in values.reshape(-1).tolist())

    def _actions(self) -> dict[str, int]:
        count = int(self._env.action_space(self._agent).n)
        names = ACTIONS.get(self._name) or tuple(map(str, range(count)))
        return {names[n]: n for n in range(count) if self._mask is None or self._mask[n]}

    def legal_actions(self) -> Sequence[str]:
        """Return the actions that the mask allows, by name or number."""
        return tuple(self._actions())

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. The game is won if it ends with a reward above 0."""
        self._env.step(self._actions()[action])
        self._run_to_move()
        done, reward = bool(self._done), self._reward
        return Outcome(text="" if done else self._look(), reward=reward, done=done, won=done and reward > 0)

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()


def _mask_of(observation: Any, info: Mapping[str, Any]) -> Any:
    """Return the action mask from the observation or the info; None if everything is allowed."""
    return observation["action_mask"] if isinstance(observation, Mapping) else info.get("action_mask")


def _draw_rows(values: Any) -> str:
    return "\n".join(" ".join("x" if mine else "o" if theirs else "." for mine, theirs in row) for row in values)


BOARDS: Mapping[str, Callable[[Any], str]] = {
    "connect_four": _draw_rows,
    # Its cells are numbered by columns.
    "tictactoe": lambda values: _draw_rows(values.transpose(1, 0, 2)),
}
"""Functions that draw the boards of games with two planes (mine, theirs): x is the player, o the opponent."""


class PettingZoo(GameFamily):
    """Implements `EnvironmentFamily`."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `PettingZooArguments`. Raises ConfigError."""
        chosen = read_arguments(PettingZooArguments, arguments)
        require_package("pettingzoo", "1.24", "pettingzoo")
        super().__init__("pettingzoo", chosen.module, chosen, lambda: PettingZooGame(chosen))
