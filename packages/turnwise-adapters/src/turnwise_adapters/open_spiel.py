"""OpenSpiel's games that have text; one player learns, the others are played here.

The player sees `observation_string` (or the information state if there is none) and acts in the words of
`action_to_string`. Chance and opponents are drawn from the task's seed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

from pydantic import Field, JsonValue

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.packages import require_package
from turnwise.core.seeds import rng
from turnwise.environments.arguments import read_arguments
from turnwise_adapters.game_family import GameArguments, GameFamily
from turnwise_adapters.text_game import Outcome, TextGame

Show = Literal["never", "once", "always"]


class OpenSpielArguments(GameArguments):
    """Which game, and against which opponent."""

    game: str
    """Name for `pyspiel.load_game`, such as "tic_tac_toe"."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Parameters of the game."""
    player: int = Field(0, ge=0)
    """Index of the player that the model plays."""
    opponent: Literal["random", "search"] = "random"
    """The other players: random legal actions, or Monte Carlo tree search for games of perfect information."""
    simulations: int = Field(200, ge=1, le=1_000_000)
    """Simulations per move of the search, both as opponent and as expert."""
    show_actions: Show = "always"
    """As in `GameArguments`."""


class OpenSpielGame(TextGame):
    """One episode."""

    def __init__(self, chosen: OpenSpielArguments) -> None:
        """See `OpenSpielArguments`."""
        self._chosen = chosen

    def open(self, seed: int) -> str:
        """Load the game and play up to the model's first move. Raises ConfigError for a game without turns or text."""
        pyspiel = importlib.import_module("pyspiel")

        chosen = self._chosen
        with boundary(ConfigError, f"open_spiel cannot load {chosen.game!r} with {chosen.parameters}"):
            self._game = pyspiel.load_game(chosen.game, dict(chosen.parameters))
        kind = self._game.get_type()
        if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
            raise ConfigError(f"{chosen.game} has simultaneous moves; load it as turn_based_simultaneous_game")
        if not (kind.provides_observation_string or kind.provides_information_state_string):
            raise ConfigError(f"{chosen.game} cannot show as text what a player sees; choose another game")
        if chosen.player >= self._game.num_players():
            raise ConfigError(f"player={chosen.player}: {chosen.game} has only {self._game.num_players()} players")
        self._sees_observation = bool(kind.provides_observation_string)
        self._is_open = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        if chosen.opponent == "search" and not self._is_open:
            raise ConfigError(f"opponent='search': {chosen.game} has hidden information; use opponent='random'")
        self._state = self._game.new_initial_state()
        self._random = rng("open_spiel", seed)
        self._seed = seed
        self._returned = 0.0
        self._run_to_move()
        self.is_over_at_once = bool(self._state.is_terminal())
        return "" if self.is_over_at_once else self._look()

    def _run_to_move(self) -> None:
        """Play chance and the other players until it is the model's move or the game is over."""
        while not self._state.is_terminal() and self._state.current_player() != self._chosen.player:
            if self._state.is_chance_node():
                actions, weights = zip(*self._state.chance_outcomes(), strict=True)
                self._state.apply_action(self._random.choices(actions, weights)[0])
            elif self._chosen.opponent == "search":
                self._state.apply_action(self._search(self._random.randrange(2**31)))
            else:
                self._state.apply_action(self._random.choice(self._state.legal_actions()))

    def _search(self, seed: int) -> int:
        import numpy as np
        from open_spiel.python.algorithms import mcts

        draws = np.random.RandomState(seed)
        judge = mcts.RandomRolloutEvaluator(n_rollouts=1, random_state=draws)
        bot = mcts.MCTSBot(self._game, 2.0, self._chosen.simulations, judge, random_state=draws, solve=True)
        return int(bot.step(self._state))

    def _look(self) -> str:
        if self._state.is_terminal():
            return f"The game is over; you got {self._returned:g}."
        player = self._chosen.player
        if self._sees_observation:
            return str(self._state.observation_string(player)).strip()
        return str(self._state.information_state_string(player)).strip()

    def _actions(self) -> dict[str, int]:
        player = self._chosen.player
        return {self._state.action_to_string(player, a).strip(): a for a in self._state.legal_actions(player)}

    def legal_actions(self) -> Sequence[str]:
        """Return the game's own names of the legal actions."""
        return tuple(self._actions())

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. The game is won if the model's returns are above 0."""
        self._state.apply_action(self._actions()[action])
        self._run_to_move()
        before, self._returned = self._returned, float(self._state.returns()[self._chosen.player])
        done = bool(self._state.is_terminal())
        return Outcome(text=self._look(), reward=self._returned - before, done=done, won=done and self._returned > 0)

    def expert_action(self) -> str | None:
        """Return the move of a tree search; None in games with hidden information."""
        if not self._is_open:
            return None
        return str(self._state.action_to_string(self._chosen.player, self._search(self._seed % 2**31))).strip()

    def random_action(self, random: Random) -> str:
        """Return any legal action."""
        return random.choice(list(self._actions()))


class OpenSpiel(GameFamily):
    """Implements `EnvironmentFamily`."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `OpenSpielArguments`. Raises ConfigError."""
        chosen = read_arguments(OpenSpielArguments, arguments)
        require_package("open-spiel", "1.6", "open-spiel")
        super().__init__("open_spiel", chosen.game, chosen, lambda: OpenSpielGame(chosen))
