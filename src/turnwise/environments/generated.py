"""The base of families that generate their tasks instead of reading them from files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.types import Message, Task
from turnwise.environments.arguments import Arguments, check_index, choose_policy, read_arguments
from turnwise.environments.texts import take_texts


class GeneratedFamily(ABC, Generic[Arguments]):
    """Implements `EnvironmentFamily`: every task is a pure function of the family's arguments, a split and an index.

    A subclass sets `name` and `section`, and defines `generate`, `build_environment`, `policies`, and either
    `sample_texts` or `texts`.
    """

    name: str
    """Name of the environment in tasks."""
    section: type[Arguments]
    """The family's arguments; its environments and policies read them too."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `section`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = read_arguments(self.section, arguments)

    def task(self, split: Split, index: int) -> Task:
        """Return the index-th task of a split.

        Raises IndexError for a negative index, ConfigError for another split, and what `generate` raises.
        """
        check_index(split, index)
        prompt, payload = self.generate(split, index)
        return Task(environment=self.name, prompt=prompt, payload=payload)

    def policy(self, name: str) -> ScriptedPolicy:
        """Return the scripted policy with this name. Raises ConfigError listing the names in `policies`."""
        return choose_policy(name, self.policies())

    def texts(self, count: int) -> list[str]:
        """Return the first `count` of the training tasks' `sample_texts`."""
        return take_texts(self.sample_texts, count)

    @abstractmethod
    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Return the prompt and the payload of a task; the index is at least 0."""

    @abstractmethod
    def build_environment(self, task: Task) -> Environment | AskingEnvironment:
        """Build a fresh, single-use environment for one episode of `task`."""

    @abstractmethod
    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the scripted policies by name: "random", "oracle" if the right replies are known, and "naive", the
        demonstrator."""

    def sample_texts(self, index: int) -> Iterable[str]:
        """Return what a policy reads and writes in the index-th training task: prompts, observations and replies."""
        raise NotImplementedError(f"{type(self).__name__} must define sample_texts")
