"""An episode of Crafter as a text game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from turnwise.core.messages import ImagePart
from turnwise.pictures.read import read_picture
from turnwise_adapters.crafter.arguments import CrafterArguments
from turnwise_adapters.crafter.expert import Expert
from turnwise_adapters.crafter.view import describe_view
from turnwise_adapters.crafter.world import Worlds
from turnwise_adapters.text_game import Outcome, TextGame

SOUGHT = {
    "collect_wood": "tree",
    "collect_drink": "water",
    "collect_stone": "stone",
    "collect_coal": "coal",
    "collect_iron": "iron",
    "collect_diamond": "diamond",
    "eat_cow": "cow",
    "eat_plant": "plant",
    "defeat_zombie": "zombie",
    "defeat_skeleton": "skeleton",
    "place_table": "tree",
}
"""What the player looks for, by goal; the others have no one thing."""


class CrafterGame(TextGame):
    """One episode."""

    def __init__(self, chosen: CrafterArguments, worlds: Worlds) -> None:
        """`worlds` makes the world of the seed."""
        self._chosen = chosen
        self._worlds = worlds
        self._env: Any = None

    def open(self, seed: int) -> str:
        """Open the world and draw the goal. `is_over_at_once` where the expert does not reach the goal in time."""
        self.goal = draw_goal(self._chosen.goals, seed)
        self.objective = write_goal(self.goal, self._chosen)
        self._env = self._worlds.open(self._world_seed(seed))
        if self.goal and self._chosen.within:
            self.is_over_at_once = not self._worlds.judge((seed, self.goal), self._is_near)
        return f"{self.objective}{self._look()}"

    def _world_seed(self, seed: int) -> int:
        count = self._chosen.num_worlds
        return 2 * (seed // 2 % count) + seed % 2 if count else seed  # an odd seed is held out, and stays odd

    def _is_near(self) -> bool:
        """Whether the expert reaches the goal within the chosen number of actions."""
        from crafter import constants

        env = self._worlds.copy(self._env)
        for _ in range(self._chosen.within):
            action = Expert(env).act(self.goal)
            if action is None or env.step(constants.actions.index(action))[2]:
                return False
            if env._player.achievements[self.goal]:
                return True
        return False

    def _look(self) -> str:
        return describe_view(self._env, self._chosen.style, SOUGHT.get(self.goal, ""))

    def pictures(self) -> Sequence[ImagePart]:
        """Return Crafter's picture, if pictures are shown."""
        return (read_picture(self._env.draw(), label="view"),) if self._chosen.pictures else ()

    def legal_actions(self) -> Sequence[str]:
        """Return the chosen actions; those without effect are legal."""
        return self._chosen.actions

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. The reward is Crafter's: 1 where something is achieved for the first time, and a tenth
        of the health gained or lost."""
        from crafter import constants

        _, reward, done, _ = self._env.step(constants.actions.index(action))
        achieved = self._env._unlocked
        won = self.goal in achieved if self.goal else len(achieved) == len(constants.achievements)
        return Outcome(text=self._look(), reward=float(reward), done=bool(done) or won, won=won)

    def expert_action(self) -> str | None:
        """Return the next action of the expert towards the goal; None without a goal."""
        return Expert(self._env).act(self.goal) if self.goal else None

    def report(self) -> Mapping[str, float]:
        """Return the part `achievements`: how many of Crafter's 22 were unlocked."""
        return {"achievements": float(len(self._env._unlocked))}


def draw_goal(goals: Mapping[str, float], seed: int) -> str:
    """Return the goal of a seed, drawn by weight; "" if there are none."""
    return Random(seed).choices(list(goals), list(goals.values()))[0] if goals else ""


def write_goal(goal: str, chosen: CrafterArguments) -> str:
    """Return the line that says what is asked for."""
    if chosen.style == "terse":
        return f" goal {goal}\n" if goal else ""
    return f"Your goal: {goal.replace('_', ' ')}.\n" if goal else "Unlock as many achievements as you can.\n"
