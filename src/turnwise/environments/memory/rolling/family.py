"""The search world in a window as an environment family: tasks, environments and policies."""

from __future__ import annotations

from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.types import Task
from turnwise.environments.arguments import choose_policy, read_arguments
from turnwise.environments.memory.rolling.arguments import RollingArguments
from turnwise.environments.memory.rolling.environment import RollingEnvironment, Rules
from turnwise.environments.memory.rolling.policies import NotingPolicy
from turnwise.environments.memory.texts import list_texts
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.policies import RandomPolicy
from turnwise.environments.search_qa.projection import parse
from turnwise.environments.search_qa.wordings import list_relations

CHAINS = ("1hop", "2hop", "3hop")
"""Kinds of questions that a note of what to look up next can carry through."""
MAX_TRIES = 20
"""Questions of the search world among which one without a relation twice must be."""


class Rolling:
    """Questions whose searches do not fit into one context. Implements `EnvironmentFamily`; tasks are pure functions
    of its arguments."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `RollingArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(RollingArguments, arguments)
        self._search = SearchQA(**{"seed": chosen.seed, **chosen.search})
        self._rules = Rules(
            window_words=chosen.window_words,
            max_note_words=chosen.max_note_words,
            max_parts=chosen.max_parts,
            memory=chosen.memory,
        )

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split: the first of `MAX_TRIES` questions of the search world that are its own.

        Raises as `SearchQA.task` does, and ConfigError where none of the questions is a chain without a relation
        twice.
        """
        for attempt in range(MAX_TRIES):
            task = self._search.task(split, index * MAX_TRIES + attempt if index >= 0 else index)
            if task.payload["kind"] in CHAINS and task.payload["query"] and _has_no_relation_twice(task):
                return Task(environment="memory", prompt=task.prompt, payload=task.payload)
        raise ConfigError(
            f"search gives no chain in {MAX_TRIES} questions that names no relation twice; ask for kinds "
            f"{', '.join(CHAINS)}"
        )

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `RollingEnvironment`."""
        return RollingEnvironment(self._search.build_environment(task), self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        return choose_policy(
            name,
            {"oracle": NotingPolicy(1.0), "random": RandomPolicy(), "naive": NotingPolicy(self._chosen.naive_keep)},
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts, passages and right replies."""
        return list_texts(self, count)


def _has_no_relation_twice(task: Task) -> bool:
    relations = list_relations(parse(task.payload["query"]))
    return len(set(relations)) == len(relations)
