"""Streams recorded in a bounded store as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Message, Task
from turnwise_worlds.memory.base import MemoryFamily
from turnwise_worlds.memory.operations.arguments import OperationsArguments
from turnwise_worlds.memory.operations.environment import OperationsEnvironment, build_prompt
from turnwise_worlds.memory.operations.events import build_events
from turnwise_worlds.memory.operations.policies import RandomPolicy, StoringPolicy


class Operations(MemoryFamily[OperationsArguments]):
    """Events about slots that open, change and end, recorded in a store that is too small for all of them."""

    section = OperationsArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed."""
        seed = derive_seed(self._chosen.seed, "memory", "operations", split, index)
        events = build_events(seed, count=self._chosen.events, max_open=self._chosen.max_open)
        return build_prompt((), events.words[0]), {"seed": seed}

    def build_environment(self, task: Task) -> OperationsEnvironment:
        """Build a fresh, single-use `OperationsEnvironment`."""
        return OperationsEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = StoringPolicy(self._chosen.naive_keep)
        return {"oracle": StoringPolicy(1.0), "random": RandomPolicy(), "naive": naive}
