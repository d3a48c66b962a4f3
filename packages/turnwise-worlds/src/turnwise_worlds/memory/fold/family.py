"""Sections and branches as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise_worlds.memory.base import MemoryFamily
from turnwise_worlds.memory.chunks.stream import NUM_ASKED
from turnwise_worlds.memory.fold.arguments import FoldArguments
from turnwise_worlds.memory.fold.environment import FoldEnvironment, build_prompt
from turnwise_worlds.memory.fold.policies import FoldingPolicy, RandomPolicy
from turnwise_worlds.memory.words import SLOTS


class Fold(MemoryFamily[FoldArguments]):
    """Sections that do not fit into the main context, in which two slots must be found."""

    section = FoldArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed."""
        path = (self._chosen.seed, "memory", "fold", split, index)
        asked = rng(*path, "asked").sample(SLOTS, NUM_ASKED)
        return build_prompt(asked), {"seed": derive_seed(*path), "asked": asked}

    def build_environment(self, task: Task) -> FoldEnvironment:
        """Build a fresh, single-use `FoldEnvironment`."""
        return FoldEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = FoldingPolicy(self._chosen.naive_keep)
        return {"oracle": FoldingPolicy(1.0), "random": RandomPolicy(), "naive": naive}
