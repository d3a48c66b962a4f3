"""ALFWorld (2010.03768): household tasks in text, played by ALFWorld's own engine, in generated rooms or in its
published games."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.packages import require_package
from turnwise.environments.arguments import read_arguments
from turnwise_adapters.alfworld.arguments import AlfworldArguments
from turnwise_adapters.alfworld.engines import Engines
from turnwise_adapters.alfworld.game import AlfworldGame
from turnwise_adapters.alfworld.houses import build_house, write_game
from turnwise_adapters.game_family import GameFamily


class Alfworld(GameFamily):
    """Implements `EnvironmentFamily`. The kinds of its tasks are ALFWorld's."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `AlfworldArguments`. Raises ConfigError."""
        self._arguments = read_arguments(AlfworldArguments, arguments)
        require_package("alfworld", "0.4", "alfworld")
        if any(weight <= 0 for weight in self._arguments.kinds.values()):
            raise ConfigError(f"kinds={self._arguments.kinds} has a weight that is not above 0; leave the kind out")
        self._files = {split: self._list_files(split) for split in ("train", "heldout")}
        chosen, engines = self._arguments, Engines()
        super().__init__("alfworld", "household", chosen, lambda: AlfworldGame(chosen, self.make_game, engines))

    def _list_files(self, split: str) -> list[Path]:
        """Return the published games of a split that have a chosen kind; ALFWorld's text engine plays none with movable
        receptacles or slices."""
        chosen = self._arguments
        if not chosen.games:
            return []
        folder = Path(chosen.games) / ("train" if split == "train" else chosen.heldout)
        found = [path for path in sorted(folder.glob("**/game.tw-pddl")) if _read_kind(path) in chosen.kinds]
        files = [path for path in found if "movable" not in str(path) and "Sliced" not in str(path)]
        if not files:
            raise ConfigError(
                f"games={chosen.games!r}: {folder} has no game.tw-pddl of kind {', '.join(chosen.kinds)}; fetch the "
                "games with alfworld-download and give its folder json_2.1.1, or leave games out"
            )
        return files

    def make_game(self, seed: int) -> Mapping[str, Any]:
        """Return the game of a seed, as ALFWorld's files have it. Raises ConfigError for a file that is no game."""
        files = self._files["heldout" if seed % 2 else "train"]
        if not files:
            random = Random(seed)
            chosen = self._arguments
            kind = random.choices(list(chosen.kinds), list(chosen.kinds.values()))[0]
            house = build_house(kind, random, copies=chosen.copies, num_things=chosen.num_things)
            return write_game(house, random)
        path = files[seed // 2 % len(files)]
        with boundary(ConfigError, f"{path} is no game of ALFWorld"):
            game: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            missing = [name for name in ("pddl_domain", "grammar", "pddl_problem") if name not in game]
        if missing:
            raise ConfigError(f"{path} is no game of ALFWorld: it has no {missing[0]}")
        return game

    def kind_of(self, seed: int) -> str:
        """Return the kind of the task with this seed."""
        files = self._files["heldout" if seed % 2 else "train"]
        if files:
            return _read_kind(files[seed // 2 % len(files)])
        kinds = self._arguments.kinds
        return Random(seed).choices(list(kinds), list(kinds.values()))[0]


def _read_kind(path: Path) -> str:
    """Return the kind that the name of a published game's folder begins with, two levels above the file."""
    return path.parent.parent.name.partition("-")[0]
