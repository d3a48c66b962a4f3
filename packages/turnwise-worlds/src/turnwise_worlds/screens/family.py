"""Screens as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.screens.arguments import ScreensArguments
from turnwise_worlds.screens.environment import INVALID_REPLY, ScreensEnvironment, build_prompt
from turnwise_worlds.screens.policies import OperatingPolicy, RandomPolicy
from turnwise_worlds.screens.screen import SIDE, make_screen
from turnwise_worlds.screens.session import Session
from turnwise_worlds.screens.show import describe


class Screens(GeneratedFamily[ScreensArguments]):
    """Buttons to press, forms to fill and lists to scroll."""

    name = "screens"
    section = ScreensArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        # A control changes what an episode shows, not which tasks there are.
        self._uncontrolled = self._chosen.model_copy(update={"shown": "own"})

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed."""
        path = (self._chosen.seed, "screens", split, index)
        kinds = self._chosen.kinds
        kind = rng(*path, "kind").choices(list(kinds), list(kinds.values()))[0]
        payload = {"kind": kind, "seed": derive_seed(*path)}
        if self._chosen.target:
            payload["target"] = self._chosen.target
        return build_prompt(Session.open(payload, self._uncontrolled), self._chosen), payload

    def build_environment(self, task: Task) -> ScreensEnvironment:
        """Build a fresh, single-use `ScreensEnvironment`."""
        return ScreensEnvironment(self._chosen, task)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        naive = OperatingPolicy(chosen, chosen.naive_skill)
        return {"oracle": OperatingPolicy(chosen, 1.0), "random": RandomPolicy(), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the opening, the screen in words, and one call of every tool."""
        task = self.task("train", index)
        screen = make_screen(task.payload)
        yield task.prompt[0].text
        yield f"{describe(screen.elements)} focus"
        yield f" click row = {index % SIDE + 1} column = {index // SIDE % SIDE + 1}"
        yield f" type text = {screen.word or INVALID_REPLY}"
        yield f" scroll direction = {'up' if index % 2 else 'down'}"
