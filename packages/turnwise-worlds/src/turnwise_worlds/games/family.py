"""Games as an environment family: deals as tasks, environments and players."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.games.arguments import GamesArguments
from turnwise_worlds.games.environment import OPPONENTS, ROLES, GameEnvironment, build_prompt
from turnwise_worlds.games.game import Game
from turnwise_worlds.games.games import GAMES
from turnwise_worlds.games.negotiation import Negotiation
from turnwise_worlds.games.policies import FairPlayer, PerfectPlayer, UniformPlayer

HELD_OUT = 0.2
"""Share of the deals with which only held-out tasks open, if a game holds out any."""


class Games(GeneratedFamily[GamesArguments]):
    """Two-player games.

    A task is a deal; with `opponent`, each deal is played as either player in turn. The deals of a split come in
    rounds, each deal once per round in a new order, so that in a batch of whole rounds the deals' luck cancels out.
    """

    name = "games"
    section = GamesArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self.game: Game[Any] = GAMES[self._chosen.game]
        """The rules."""
        self._deals = self.game.deals()
        order = rng(0, "held out", self._chosen.game).sample(range(len(self._deals)), len(self._deals))
        count = int(HELD_OUT * len(order)) if self.game.holds_out else 0
        self._places: dict[Split, list[int]] = {
            "train": sorted(order[count:]),
            "heldout": sorted(order[:count]) or sorted(order),
        }
        """The deals of each split. They do not depend on the seed, so a held-out deal is held out for all seeds."""
        self._order = lru_cache(maxsize=4)(self._shuffle)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless."""
        game, agent = divmod(index, 2) if self._chosen.opponent else (index, 0)
        turn, place = divmod(game, len(self._places[split]))
        deal = self._order(split, turn)[place]
        payload = {
            "game": self.game.name,
            "deal": deal,
            "seed": derive_seed(self._chosen.seed, "games", split, index),
            **({"agent": agent} if self._chosen.opponent else {}),
        }
        return build_prompt(self.game, self._deals[deal]), payload

    def build_environment(self, task: Task) -> GameEnvironment:
        """Build a fresh, single-use `GameEnvironment`."""
        roles = OPPONENTS[task.payload["agent"]] if self._chosen.opponent else ROLES
        return GameEnvironment(self.game, roles, prosocial=self._chosen.prosocial)

    def policy(self, name: str) -> ScriptedPolicy:
        """See `GeneratedFamily.policy`. The game is solved here, where no episode waits for it."""
        policy = super().policy(name)
        if isinstance(policy, PerfectPlayer):
            _ = policy.choices
        return policy

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the players "uniform" (also "naive" and "random") and "optimal" (also "oracle"), which in a
        negotiation knows the values of both."""
        best = FairPlayer(self._deals) if isinstance(self.game, Negotiation) else PerfectPlayer(self.game)
        return {**dict.fromkeys(("uniform", "naive", "random"), UniformPlayer()), "optimal": best, "oracle": best}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the prompts and moves of a game of random moves."""
        random = rng(self._chosen.seed, "texts", index)
        state = self._deals[self.task("train", index).payload["deal"]]
        while self.game.mover(state) is not None:
            move = random.choice(self.game.moves(state))
            yield build_prompt(self.game, state)[0].text
            yield f" {move}"
            state = self.game.play(state, move)

    def _shuffle(self, split: Split, turn: int) -> list[int]:
        places = self._places[split]
        return rng(self._chosen.seed, "deals", split, turn).sample(places, len(places))
