"""Devices as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.devices.arguments import DevicesArguments
from turnwise_worlds.devices.environment import DevicesEnvironment, build_prompt
from turnwise_worlds.devices.policies import RandomPolicy, UsingPolicy


class Devices(GeneratedFamily[DevicesArguments]):
    """Tasks on a phone and a desktop with contacts, notes, alarms, files and settings."""

    name = "devices"
    section = DevicesArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        # A control changes what an episode shows, not which tasks there are.
        self._uncontrolled = self._chosen.model_copy(update={"screen": "shown"})

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no device."""
        path = (self._chosen.seed, "devices", split, index)
        random, kinds, tasks = rng(*path), self._chosen.kinds, self._chosen.tasks
        payload = {
            "kind": random.choices(list(kinds), list(kinds.values()))[0],
            "task": random.choices(list(tasks), list(tasks.values()))[0],
            "seed": derive_seed(*path, "device"),
        }
        return build_prompt(payload, self._uncontrolled), payload

    def build_environment(self, task: Task) -> DevicesEnvironment:
        """Build a fresh, single-use `DevicesEnvironment`."""
        return DevicesEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        naive = UsingPolicy(chosen, chosen.naive_skill)
        return {"oracle": UsingPolicy(chosen, 1.0), "random": RandomPolicy(chosen), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield the opening and an action of each device."""
        yield self.task("train", index).prompt[0].text
        yield f'{{"action_type": "click", "index": {index % 12}}}'
        yield f'{{"action_type": "DOUBLE_CLICK", "x": 400, "y": {20 + index % 15 * 40}}}'
