"""Streams of which a bounded store is kept as an environment family: tasks, environments and policies."""

from __future__ import annotations

from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.memory.operations.arguments import OperationsArguments
from turnwise.environments.memory.operations.environment import OperationsEnvironment, Rules, build_prompt
from turnwise.environments.memory.operations.events import build_events
from turnwise.environments.memory.operations.policies import RandomPolicy, StoringPolicy
from turnwise.environments.memory.texts import list_texts


class Operations:
    """What is said of slots that open, change and end, to be kept in a store that is too small for all of it.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `OperationsArguments`. Raises ConfigError naming the argument and the
        remedy."""
        self._chosen = chosen = read_arguments(OperationsArguments, arguments)
        self._rules = Rules(
            num_events=chosen.events, max_open=chosen.max_open, capacity=chosen.capacity, memory=chosen.memory
        )

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no seed.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        seed = derive_seed(self._chosen.seed, "memory", "operations", split, index)
        events = build_events(seed, count=self._chosen.events, max_open=self._chosen.max_open)
        return Task(environment="memory", prompt=build_prompt((), events.words[0]), payload={"seed": seed})

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `OperationsEnvironment`."""
        return OperationsEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        return choose_policy(
            name,
            {"oracle": StoringPolicy(1.0), "random": RandomPolicy(), "naive": StoringPolicy(self._chosen.naive_keep)},
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies."""
        return list_texts(self, count)
