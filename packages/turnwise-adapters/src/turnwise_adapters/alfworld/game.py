"""An episode of ALFWorld's text engine as a text game."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from turnwise_adapters.alfworld.arguments import AlfworldArguments
from turnwise_adapters.alfworld.engines import Engine, Engines
from turnwise_adapters.text_game import Outcome, TextGame

_REQUEST = "Your task is to: "
_WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
_OLD, _NEW = re.compile(r"put (.+) (?:in/on|in|on) (.+)"), re.compile(r"move (.+) to (.+)")
NOTHING = "Nothing happens."
"""The engine's answer to what it does not know or cannot do."""


class AlfworldGame(TextGame):
    """One episode."""

    def __init__(
        self, chosen: AlfworldArguments, make_game: Callable[[int], Mapping[str, Any]], engines: Engines
    ) -> None:
        """`make_game` returns the game of a seed, which one of the `engines` plays."""
        self._chosen = chosen
        self._make_game = make_game
        self._engines = engines
        self._engine: Engine | None = None
        self._num_nothing = 0

    @property
    def _playing(self) -> Engine:
        assert self._engine is not None  # opened, and not closed
        return self._engine

    def open(self, seed: int) -> str:
        """Load the game of the seed. A published game that its file marks as unsolvable is skipped."""
        game = self._make_game(seed)
        self.is_over_at_once = game.get("solvable") is False
        if self.is_over_at_once:
            return ""
        self._engine = self._engines.open(game)
        text = str(self._engine.state.feedback).removeprefix(_WELCOME).strip()
        self.objective = _REQUEST + text.partition(_REQUEST)[2]
        return text

    def legal_actions(self) -> Sequence[str]:
        """Return the engine's admissible commands if they are shown."""
        return () if self._chosen.show_actions == "never" else self._playing.state["admissible_commands"]

    def random_action(self, random: Random) -> str:
        """Return any admissible command."""
        return str(random.choice(self._playing.state["admissible_commands"]))

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. The reward is ALFWorld's: 1 for the solved task."""
        state, score, done = self._playing.step(to_admissible(action, self._playing.state["admissible_commands"]))
        text = str(state.feedback).strip()
        self._num_nothing += text == NOTHING
        return Outcome(text=text, reward=score, done=done, won=bool(state["won"]))

    def expert_action(self) -> str | None:
        """Return the next command of the engine's planner, which sees the whole room; None if it finds no way."""
        return next(iter(self._playing.plan()), None)

    def report(self) -> Mapping[str, float]:
        """Return the part `nothing_happened`: how many actions the engine did not know or could not do."""
        return {"nothing_happened": float(self._num_nothing)}

    def close(self) -> None:
        """Give the engine back."""
        if self._engine is not None:
            self._engines.close(self._engine)
            self._engine = None


def to_admissible(action: str, admissible: Sequence[str]) -> str:
    """Return a command in the words of the game: one of a release before 0.4, `put mug 1 in/on desk 1`, as a newer one
    says it, `move mug 1 to desk 1`, or the other way round; any other text as it is."""
    for pattern, words in (_OLD, "move {} to {}"), (_NEW, "put {} in/on {}"):
        found = pattern.fullmatch(action)
        if found and words.format(*found.groups()) in admissible:
            return words.format(*found.groups())
    return action
