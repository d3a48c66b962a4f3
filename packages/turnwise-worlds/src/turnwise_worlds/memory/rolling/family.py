"""The search world in a window as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.types import Message, Task
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.policies import RandomPolicy
from turnwise.environments.search_qa.projection import parse
from turnwise.environments.search_qa.wordings import list_relations
from turnwise_worlds.memory.base import MemoryFamily
from turnwise_worlds.memory.rolling.arguments import RollingArguments
from turnwise_worlds.memory.rolling.environment import RollingEnvironment
from turnwise_worlds.memory.rolling.policies import NotingPolicy

CHAINS = ("1hop", "2hop", "3hop")
"""Kinds of questions that can be answered by noting what to look up next."""
MAX_TRIES = 20
"""Number of search-world questions among which one without a repeated relation must be found."""


class Rolling(MemoryFamily[RollingArguments]):
    """Questions whose searches do not fit into one context."""

    section = RollingArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`."""
        super().__init__(**arguments)
        self._search = SearchQA(**{"seed": self._chosen.seed, **self._chosen.search})

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate the first suitable of the task's `MAX_TRIES` questions of the search world.

        Raises as `SearchQA.task` does, and ConfigError if none of the questions is a chain without a repeated relation.
        """
        for attempt in range(MAX_TRIES):
            task = self._search.task(split, index * MAX_TRIES + attempt)
            if task.payload["kind"] in CHAINS and task.payload["query"] and _has_no_relation_twice(task):
                return task.prompt, dict(task.payload)
        raise ConfigError(
            f"none of {MAX_TRIES} generated questions is a chain that uses each relation only once; set kinds to "
            f"{', '.join(CHAINS)}"
        )

    def build_environment(self, task: Task) -> RollingEnvironment:
        """Build a fresh, single-use `RollingEnvironment`."""
        return RollingEnvironment(self._search.build_environment(task), self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = NotingPolicy(self._chosen.naive_keep)
        return {"oracle": NotingPolicy(1.0), "random": RandomPolicy(), "naive": naive}


def _has_no_relation_twice(task: Task) -> bool:
    relations = list_relations(parse(task.payload["query"]))
    return len(set(relations)) == len(relations)
