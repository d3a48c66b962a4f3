"""Streams that do not fit into the context as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task
from turnwise_worlds.memory.base import MemoryFamily
from turnwise_worlds.memory.chunks.arguments import ChunksArguments
from turnwise_worlds.memory.chunks.environment import ChunksEnvironment, build_prompt
from turnwise_worlds.memory.chunks.policies import KeepingPolicy, RandomPolicy
from turnwise_worlds.memory.chunks.stream import NUM_ASKED, format_memory
from turnwise_worlds.memory.words import NONE, SLOTS


class Chunks(MemoryFamily[ChunksArguments]):
    """Streams of events over which two slots must be remembered.

    A task contains the seed of its stream and the question, so the same task can use streams of any length.
    """

    section = ChunksArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed."""
        path = (self._chosen.seed, "memory", split, index)
        asked = rng(*path, "asked").sample(SLOTS, NUM_ASKED)
        prompt = build_prompt(asked, format_memory(dict.fromkeys(asked, NONE)), ())
        return prompt, {"seed": derive_seed(*path), "asked": asked}

    def build_environment(self, task: Task) -> ChunksEnvironment:
        """Build a fresh, single-use `ChunksEnvironment`."""
        return ChunksEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = KeepingPolicy(self._chosen.naive_keep)
        return {"oracle": KeepingPolicy(1.0), "random": RandomPolicy(), "naive": naive}
