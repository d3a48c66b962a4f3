"""Streams that do not fit into the context as an environment family: tasks, environments and policies."""

from __future__ import annotations

from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.memory.chunks.arguments import ChunksArguments
from turnwise.environments.memory.chunks.environment import ChunksEnvironment, Rules, build_prompt
from turnwise.environments.memory.chunks.policies import KeepingPolicy, RandomPolicy
from turnwise.environments.memory.chunks.stream import NUM_ASKED, format_memory
from turnwise.environments.memory.texts import list_texts
from turnwise.environments.memory.words import NONE, SLOTS


class Chunks:
    """Two slots to be remembered over a stream of events.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments. A task holds the seed of its stream and
    what is asked: the same task can be read in streams of any length.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `ChunksArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(ChunksArguments, arguments)
        self._rules = Rules(
            num_chunks=chosen.chunks,
            chunk_events=chosen.chunk_events,
            max_memory_words=chosen.max_memory_words,
            memory=chosen.memory,
        )

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no seed.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        path = (self._chosen.seed, "memory", split, index)
        asked = rng(*path, "asked").sample(SLOTS, NUM_ASKED)
        prompt = build_prompt(asked, format_memory(dict.fromkeys(asked, NONE)), ())
        return Task(environment="memory", prompt=prompt, payload={"seed": derive_seed(*path), "asked": asked})

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `ChunksEnvironment`."""
        return ChunksEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        return choose_policy(
            name,
            {"oracle": KeepingPolicy(1.0), "random": RandomPolicy(), "naive": KeepingPolicy(self._chosen.naive_keep)},
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies."""
        return list_texts(self, count)
