"""Questions for a planner and its searchers as an environment family: tasks, environments and policies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Task
from turnwise.environments.arguments import choose_policy, read_arguments
from turnwise.environments.delegate.arguments import DelegateArguments
from turnwise.environments.delegate.environment import DelegateEnvironment, Rules
from turnwise.environments.delegate.policies import FIND, NaivePolicy, OraclePolicy, RandomPolicy
from turnwise.environments.file_splits import DataFile
from turnwise.environments.search_qa.arguments import SearchArguments
from turnwise.environments.search_qa.environment import SearchEnvironment
from turnwise.environments.search_qa.family import SearchQA

SWAPPED_FROM = 1000
"""Tasks of a split among which another one's answer is drawn."""


class Delegate:
    """The search world's questions, for a planner that calls searchers.

    Implements `EnvironmentFamily`; tasks are those of `SearchQA` with the same arguments.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `DelegateArguments`. Raises ConfigError naming the argument and the remedy,
        RewardError if the reward fails its own cases."""
        self._chosen = chosen = read_arguments(DelegateArguments, arguments)
        self._search = SearchQA(**chosen.model_dump(include=set(SearchArguments.model_fields)))
        self._rules = Rules(
            max_depth=chosen.max_depth,
            max_replies=chosen.max_replies,
            tool_timeout_s=chosen.tool_timeout_s,
            max_observation_chars=chosen.max_observation_chars,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """See `SearchQA.notes`."""
        return self._search.notes

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """See `SearchQA.data_files`."""
        return self._search.data_files

    def place(self, split: Split, index: int) -> str | None:
        """See `SearchQA.place`."""
        return self._search.place(split, index)

    def task(self, split: Split, index: int) -> Task:
        """See `SearchQA.task`."""
        return replace(self._search.task(split, index), environment="delegate", id="")

    def build_environment(self, task: Task) -> Environment | AskingEnvironment:
        """A fresh, single-use `DelegateEnvironment`; a `SearchEnvironment` for one agent."""
        if self._chosen.agents == "one":
            return self._search.build_environment(task)
        swap = partial(self._draw_answer, task) if self._chosen.answers == "swapped" else None
        return DelegateEnvironment(self._rules, partial(self._build_search, task), swap)

    def _build_search(self, task: Task) -> SearchEnvironment:
        environment = self._search.build_environment(task)
        assert isinstance(environment, SearchEnvironment)
        return environment

    def _draw_answer(self, task: Task, number: int) -> str:
        """The right answer of another task of the split."""
        index = rng(self._chosen.seed, task.id, "swapped", number).randrange(SWAPPED_FROM)
        return self._search.gold_answer(self._search.task(task.payload["split"], index))

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        if self._chosen.agents == "one":
            return self._search.policy(name)
        return choose_policy(
            name,
            {"oracle": OraclePolicy(), "random": RandomPolicy(), "naive": NaivePolicy(self._chosen.naive_wander)},
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as policies meet them: prompts, passages, calls (`rendering.calls`),
        answers; the same for two roles and for one."""
        texts: list[str] = []
        for text in self._search.texts(count):
            if text.startswith("<search>"):
                query = text.removeprefix("<search>").removesuffix("</search>").strip()
                texts += [f"{FIND}{query}\n", f' ask query = "{query}"', f' search query = "{query}"']
            else:
                texts.append(text)
        return texts[:count]
