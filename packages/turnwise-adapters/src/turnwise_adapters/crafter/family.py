"""Crafter (2109.06780): survive in a world of forests, caves and creatures, and unlock up to 22 achievements."""

from __future__ import annotations

from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.packages import require_package
from turnwise.environments.arguments import read_arguments
from turnwise_adapters.crafter.arguments import ACHIEVEMENTS, ACTIONS, CrafterArguments
from turnwise_adapters.crafter.game import CrafterGame, draw_goal
from turnwise_adapters.crafter.world import Worlds
from turnwise_adapters.game_family import GameFamily


class Crafter(GameFamily):
    """Implements `EnvironmentFamily`. The kinds of its tasks are the goals."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `CrafterArguments`. Raises ConfigError."""
        chosen = read_arguments(CrafterArguments, arguments)
        require_package("crafter", "1.8", "crafter")
        for field, names, known in (("goals", chosen.goals, ACHIEVEMENTS), ("actions", chosen.actions, ACTIONS)):
            unknown = [name for name in names if name not in known]
            if unknown:
                raise ConfigError(f"{field} has {unknown[0]!r}; use some of {', '.join(known)}")
        if any(weight <= 0 for weight in chosen.goals.values()):
            raise ConfigError(f"goals={chosen.goals} has a weight that is not above 0; leave the goal out")
        if chosen.within and not chosen.goals:
            raise ConfigError(f"within={chosen.within} has no effect without goals; name goals or leave it out")
        self._goals = chosen.goals
        worlds = Worlds(chosen.area, chosen.picture_size)
        super().__init__("crafter", "survival", chosen, lambda: CrafterGame(chosen, worlds))

    def kind_of(self, seed: int) -> str:
        """Return the goal of the task with this seed."""
        return draw_goal(self._goals, seed) or "survival"
