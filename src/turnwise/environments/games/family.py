"""Games as an environment family: deals as tasks, environments and players."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.games.arguments import GamesArguments
from turnwise.environments.games.environment import OPPONENTS, ROLES, GameEnvironment, build_prompt
from turnwise.environments.games.game import Game
from turnwise.environments.games.games import GAMES
from turnwise.environments.games.negotiation import Negotiation
from turnwise.environments.games.policies import FairPlayer, PerfectPlayer, UniformPlayer
from turnwise.environments.texts import take_texts

HELD_OUT = 0.2
"""Share of the deals that only held-out tasks open with, where a game holds out any."""


class Games:
    """A game of two players. Implements `EnvironmentFamily`; tasks are pure functions of its arguments.

    A task is a deal, with `opponent` one after the other as either player. The deals of a split come in rounds, each of
    them once per round in a new order, so that a batch of whole rounds has no luck of the deal.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `GamesArguments`. Raises ConfigError naming the argument and the remedy."""
        chosen = read_arguments(GamesArguments, arguments)
        self.game: Game[Any] = GAMES[chosen.game]
        """The rules."""
        self._seed = chosen.seed
        if chosen.prosocial and self.game.zero_sum:
            raise ConfigError(
                f"environment.args.prosocial={chosen.prosocial} in {chosen.game}, where one player loses what the "
                "other wins: nothing would be left to learn from; use 0, or game='negotiation'"
            )
        self._has_opponent, self._prosocial = chosen.opponent, chosen.prosocial
        self._deals = self.game.deals()
        order = rng(0, "held out", chosen.game).sample(range(len(self._deals)), len(self._deals))
        count = int(HELD_OUT * len(order)) if self.game.holds_out else 0
        self._places: dict[Split, list[int]] = {
            "train": sorted(order[count:]),
            "heldout": sorted(order[:count]) or sorted(order),
        }
        """The deals of each split. They do not depend on the seed: what is held out is so for all seeds."""
        self._order = lru_cache(maxsize=4)(self._shuffle)

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        game, agent = divmod(index, 2) if self._has_opponent else (index, 0)
        turn, place = divmod(game, len(self._places[split]))
        deal = self._order(split, turn)[place]
        return Task(
            environment="games",
            prompt=build_prompt(self.game, self._deals[deal]),
            payload={
                "game": self.game.name,
                "deal": deal,
                "seed": derive_seed(self._seed, "games", split, index),
                **({"agent": agent} if self._has_opponent else {}),
            },
        )

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `GameEnvironment`."""
        roles = OPPONENTS[task.payload["agent"]] if self._has_opponent else ROLES
        return GameEnvironment(self.game, roles, prosocial=self._prosocial)

    def policy(self, name: str) -> ScriptedPolicy:
        """A player: "uniform" (also "naive" and "random"), or "optimal" (also "oracle"), which in a negotiation knows
        the values of both. Raises ConfigError naming these."""
        uniform = UniformPlayer()
        names = dict.fromkeys(("uniform", "naive", "random"), uniform)
        if name not in ("optimal", "oracle"):
            return choose_policy(name, {**names, "optimal": uniform, "oracle": uniform})
        return FairPlayer(self._deals) if isinstance(self.game, Negotiation) else PerfectPlayer(self.game)

    def texts(self, count: int) -> list[str]:
        """`count` texts of training games as a policy meets them: prompts and legal moves."""
        return take_texts(self._walk, count)

    def _walk(self, index: int) -> list[str]:
        """Prompts and moves of a game of random moves."""
        random, texts = rng(self._seed, "texts", index), []
        state = self._deals[self.task("train", index).payload["deal"]]
        while self.game.mover(state) is not None:
            move = random.choice(self.game.moves(state))
            texts += [build_prompt(self.game, state)[0].text, f" {move}"]
            state = self.game.play(state, move)
        return texts

    def _shuffle(self, split: Split, turn: int) -> list[int]:
        places = self._places[split]
        return rng(self._seed, "deals", split, turn).sample(places, len(places))
