"""ALFWorld's text engines of a family, each with its own copy of a planner's library: used again for every game, as
unloading more than one of these libraries crashes Python when it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

_LOADING = Lock()
"""The translator of PDDL sets `sys.argv` and `sys.stdout` and keeps its options in a module."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """An engine with a loaded game."""

    base: Any
    """TextWorld's environment for PDDL."""
    named: Any
    """The same with ALFWorld's names of things."""
    state: Any
    """What it showed last."""

    def step(self, command: str) -> tuple[Any, float, bool]:
        """Take a command; return the state, the score and whether the game is over."""
        self.state, score, done = self.named.step(command)
        return self.state, float(score), bool(done)

    def plan(self) -> list[str]:
        """Return the planner's commands from here; none if it finds no way."""
        return [str(command) for command in self.base._pddl_state.replan(self.base._entity_infos)]


class Engines:
    """Lends engines; as many exist as were lent at the same time."""

    def __init__(self) -> None:
        self._idle: list[Engine] = []

    def open(self, game: Mapping[str, Any]) -> Engine:
        """Return an engine in the first state of a game: 0.4 s, as it translates the problem four times."""
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs import PddlEnv

        with _LOADING:
            arguments = sys.argv
            try:
                if self._idle:
                    engine = self._idle.pop()
                else:
                    base = PddlEnv(textworld.EnvInfos(admissible_commands=True, won=True))
                    engine = Engine(base=base, named=AlfredDemangler(base), state=None)
                engine.named.load(game)
                engine.state = engine.named.reset()
                return engine
            finally:
                sys.argv = arguments

    def close(self, engine: Engine) -> None:
        """Take an engine back."""
        self._idle.append(engine)
