"""An episode of ALFWorld's text engine as a text game."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from random import Random
from threading import Lock
from typing import Any

from turnwise_adapters.alfworld.arguments import AlfworldArguments
from turnwise_adapters.text_game import Outcome, TextGame

_LOADING = Lock()
"""ALFWorld's translator of PDDL sets `sys.argv` and `sys.stdout` and keeps its options in a module."""
_REQUEST = "Your task is to: "
_WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
NOTHING = "Nothing happens."
"""The engine's answer to what it does not know or cannot do."""


class AlfworldGame(TextGame):
    """One episode."""

    def __init__(self, chosen: AlfworldArguments, make_game: Callable[[int], Mapping[str, Any]]) -> None:
        """`make_game` returns the game of a seed."""
        self._chosen = chosen
        self._make_game = make_game
        self._engine: Any = None
        self._num_nothing = 0

    def open(self, seed: int) -> str:
        """Load the game of the seed: 0.5 s, as ALFWorld's engine translates the problem four times. A published game
        that its file marks as unsolvable is skipped."""
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs import PddlEnv

        game = self._make_game(seed)
        self.is_over_at_once = game.get("solvable") is False
        if self.is_over_at_once:
            return ""
        with _LOADING:
            arguments = sys.argv
            try:
                self._engine = PddlEnv(textworld.EnvInfos(admissible_commands=True, won=True))
                self._env = AlfredDemangler(self._engine)
                self._env.load(game)
                self._state = self._env.reset()
            finally:
                sys.argv = arguments
        text = str(self._state.feedback).removeprefix(_WELCOME).strip()
        self.objective = _REQUEST + text.partition(_REQUEST)[2]
        return text

    def legal_actions(self) -> Sequence[str]:
        """Return the engine's admissible commands if they are shown."""
        return () if self._chosen.show_actions == "never" else self._state["admissible_commands"]

    def random_action(self, random: Random) -> str:
        """Return any admissible command."""
        return str(random.choice(self._state["admissible_commands"]))

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. The reward is ALFWorld's: 1 for the solved task."""
        self._state, score, done = self._env.step(action)
        text = str(self._state.feedback).strip()
        self._num_nothing += text == NOTHING
        return Outcome(text=text, reward=float(score), done=bool(done), won=bool(self._state["won"]))

    def expert_action(self) -> str | None:
        """Return the next command of the engine's planner, which sees the whole room; None if it finds no way."""
        plan = self._engine._pddl_state.replan(self._engine._entity_infos)
        return str(plan[0]) if plan else None

    def report(self) -> Mapping[str, float]:
        """Return the part `nothing_happened`: how many actions the engine did not know or could not do."""
        return {"nothing_happened": float(self._num_nothing)}

    def close(self) -> None:
        """Free the engine's copy of its library."""
        if self._engine is not None:
            from textworld.envs.pddl import pddl

            engine, self._engine = self._engine, None
            pddl.fast_downward.close_lib(engine.downward_lib)
