"""Questions for a planner and its searchers as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.search_qa.arguments import SearchArguments
from turnwise.environments.search_qa.environment import SearchEnvironment
from turnwise.environments.search_qa.family import SearchQA
from turnwise_worlds.delegate.arguments import DelegateArguments
from turnwise_worlds.delegate.environment import DelegateEnvironment
from turnwise_worlds.delegate.policies import FIND, NaivePolicy, OraclePolicy, RandomPolicy

SWAPPED_FROM = 1000
"""Number of tasks of a split among which another task's answer is drawn."""


class Delegate(GeneratedFamily[DelegateArguments]):
    """Questions of the search world for a planner that calls searchers. Tasks are those of `SearchQA` with the same
    arguments."""

    name = "delegate"
    section = DelegateArguments

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises RewardError if the reward fails its own cases."""
        super().__init__(**arguments)
        self._search = SearchQA(**self._chosen.model_dump(include=set(SearchArguments.model_fields)))

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """See `SearchQA.generate`."""
        return self._search.generate(split, index)

    def build_environment(self, task: Task) -> Environment | AskingEnvironment:
        """Build a fresh, single-use `DelegateEnvironment`, or a `SearchEnvironment` for one agent."""
        if self._chosen.agents == "one":
            return self._search.build_environment(task)
        swap = partial(self._draw_answer, task) if self._chosen.answers == "swapped" else None
        return DelegateEnvironment(self._chosen, partial(self._build_search, task), swap)

    def _build_search(self, task: Task) -> SearchEnvironment:
        environment = self._search.build_environment(task)
        assert isinstance(environment, SearchEnvironment)
        return environment

    def _draw_answer(self, task: Task, number: int) -> str:
        """Return the right answer to another task of the split."""
        index = rng(self._chosen.seed, task.id, "swapped", number).randrange(SWAPPED_FROM)
        return self._search.gold_answer(self._search.task(task.payload["split"], index))

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        if self._chosen.agents == "one":
            return self._search.policies()
        return {"oracle": OraclePolicy(), "random": RandomPolicy(), "naive": NaivePolicy(self._chosen.naive_wander)}

    def texts(self, count: int) -> list[str]:
        """Return `count` texts of training tasks as policies see them: prompts, passages, calls (`rendering.calls`),
        answers; the same for two roles and for one."""
        texts: list[str] = []
        for text in self._search.texts(count):
            if text.startswith("<search>"):
                query = text.removeprefix("<search>").removesuffix("</search>").strip()
                texts += [f"{FIND}{query}\n", f' ask query = "{query}"', f' search query = "{query}"']
            else:
                texts.append(text)
        return texts[:count]
