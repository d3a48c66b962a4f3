"""Sections and branches as an environment family: tasks, environments and policies."""

from __future__ import annotations

from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.memory.chunks.stream import NUM_ASKED
from turnwise.environments.memory.fold.arguments import FoldArguments
from turnwise.environments.memory.fold.environment import FoldEnvironment, Rules, build_prompt
from turnwise.environments.memory.fold.policies import FoldingPolicy, RandomPolicy
from turnwise.environments.memory.texts import list_texts
from turnwise.environments.memory.words import SLOTS


class Fold:
    """Two slots to be found in sections that do not fit into the main context. Implements `EnvironmentFamily`; tasks
    are pure functions of its arguments."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `FoldArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(FoldArguments, arguments)
        self._rules = Rules(
            num_sections=chosen.sections,
            section_events=chosen.section_events,
            max_return_words=chosen.max_return_words,
            memory=chosen.memory,
        )

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no seed.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        path = (self._chosen.seed, "memory", "fold", split, index)
        asked = rng(*path, "asked").sample(SLOTS, NUM_ASKED)
        payload = {"seed": derive_seed(*path), "asked": asked}
        return Task(environment="memory", prompt=build_prompt(asked), payload=payload)

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `FoldEnvironment`."""
        return FoldEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        return choose_policy(
            name,
            {"oracle": FoldingPolicy(1.0), "random": RandomPolicy(), "naive": FoldingPolicy(self._chosen.naive_keep)},
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies."""
        return list_texts(self, count)
