"""TextWorld: games generated from seeds, or a user's game file.

`narrate` compiles each game with Inform 7 and shows its prose, which takes seconds per game; without it the player
reads the facts of the room in the package's words, which is much faster.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.packages import require_package
from turnwise.environments.arguments import Seconds, read_arguments
from turnwise_adapters.facts import describe_facts
from turnwise_adapters.game_family import GameArguments, GameFamily
from turnwise_adapters.text_game import Outcome, ReplyKind, TextGame

LOOKING = ("examine", "inventory", "look")
"""First words of commands that change nothing."""


class TextWorldArguments(GameArguments):
    """Which games are generated."""

    game: str = ""
    """Path of a game file (`.z8` or `.json`) that every task plays; empty generates games from seeds."""
    rooms: int = Field(3, ge=1, le=100)
    """Number of rooms."""
    objects: int = Field(4, ge=1, le=100)
    """Least number of objects."""
    quest_length: int = Field(3, ge=1, le=50)
    """Number of commands in the shortest solution."""
    theme: str = "house"
    """Grammar of the package: "house", or "basic" with names such as box88."""
    hints: bool = True
    """Whether the objective spells out every step, or only the last."""
    num_games: int = Field(0, ge=0)
    """Number of different games per split, which its tasks use in turn; 0 generates a new game for every task."""
    narrate: bool = True
    """Whether games are compiled and narrate themselves; otherwise the player reads facts."""
    looking: bool = False
    """Whether commands that change nothing (examine, look, inventory) are legal; their output is shown anyway."""
    reply: ReplyKind = "text"
    """As in `GameArguments`."""
    tool_timeout_s: Seconds = 120.0
    """Most seconds that one command, or generating a game, may take."""


class TextWorldGame(TextGame):
    """One episode."""

    def __init__(self, chosen: TextWorldArguments, folder: Path) -> None:
        """`folder` stores the generated games."""
        self._chosen = chosen
        self._folder = folder
        self._env: Any = None

    def open(self, seed: int) -> str:
        """Generate the game unless it exists, and start it."""
        import textworld

        path = Path(self._chosen.game) if self._chosen.game else make_game(self._chosen, seed, self._folder)
        asked = ("admissible_commands", "policy_commands", "facts", "objective", "won", "lost", "max_score")
        infos = textworld.EnvInfos(**dict.fromkeys(asked, True))
        with boundary(ConfigError, f"textworld cannot start {path}"):
            self._env = textworld.start(str(path), infos)
            self._state = self._env.reset()
        self._score = 0
        return f"{self._state['objective']}\n{self._look()}" if self._tells_facts else str(self._state.feedback).strip()

    @property
    def _tells_facts(self) -> bool:
        return not (self._chosen.narrate or self._chosen.game.endswith(".z8"))

    def _look(self) -> str:
        return describe_facts(self._state["facts"])

    def legal_actions(self) -> Sequence[str]:
        """Return the commands that the game accepts."""
        commands = self._state["admissible_commands"]
        return tuple(c for c in commands if self._chosen.looking or c.split()[0] not in LOOKING)

    def step(self, action: str) -> Outcome:
        """Send a command. The reward is the increase of the game's score, divided by its maximum score."""
        self._state, score, done = self._env.step(action)
        gained, self._score = score - self._score, score
        return Outcome(
            text=self._look() if self._tells_facts else str(self._state.feedback).strip(),
            reward=gained / max(1, self._state["max_score"] or 1),
            done=bool(done),
            won=bool(self._state["won"]),
        )

    def expert_action(self) -> str | None:
        """Return the next command of the package's own solution from here."""
        commands = self._state["policy_commands"]
        return str(commands[0]) if commands else None

    def close(self) -> None:
        """Stop the game."""
        if self._env is not None:
            self._env.close()


def make_game(chosen: TextWorldArguments, seed: int, folder: Path) -> Path:
    """Return the file of the game with this seed, generated at the first call."""
    import textworld

    if chosen.num_games:
        seed = 2 * (seed // 2 % chosen.num_games) + seed % 2  # an odd seed is held out, and stays odd
    path = folder / f"{seed}{'.z8' if chosen.narrate else '.json'}"
    if not path.exists():
        options = textworld.GameOptions()
        options.seeds, options.nb_rooms, options.nb_objects = seed, chosen.rooms, chosen.objects
        options.quest_length, options.path, options.kb = chosen.quest_length, str(path), _knowledge()
        options.grammar.theme, options.grammar.only_last_action = chosen.theme, not chosen.hints
        with boundary(ConfigError, f"textworld cannot make a game of rooms={chosen.rooms}, objects={chosen.objects}"):
            game = textworld.generator.make_game(options)
            if chosen.narrate:
                textworld.generator.compile_game(game, options)
            else:
                game.save(str(path))
    return path


@cache
def _knowledge() -> Any:
    from textworld.generator.data import KnowledgeBase

    return KnowledgeBase.default()  # parsing it takes longer than generating a game


class TextWorld(GameFamily):
    """Implements `EnvironmentFamily`."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `TextWorldArguments`. Raises ConfigError."""
        chosen = read_arguments(TextWorldArguments, arguments)
        require_package("textworld", "1.6", "textworld")
        self._folder = tempfile.TemporaryDirectory(prefix="turnwise-textworld-")
        folder = Path(self._folder.name)
        super().__init__("textworld", chosen.game or "made", chosen, lambda: TextWorldGame(chosen, folder))
