"""Debates as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.debate.arguments import DebateArguments
from turnwise.environments.debate.case import SIDES, build_case, draw_quotes
from turnwise.environments.debate.environment import (
    NUM_GIVEN,
    DebateEnvironment,
    Rules,
    build_quote_prompt,
    build_verdict_prompt,
    describe,
)
from turnwise.environments.debate.policies import BestPolicy, NaivePolicy, RandomPolicy
from turnwise.environments.texts import take_texts


class Debate:
    """Cases that a judge decides by what is quoted to it.

    Implements `EnvironmentFamily`; tasks and texts do not depend on the protocol, so that runs of different protocols
    share a tokenizer. A task's kind is the side that is right: in a consultancy, "B" are the cases in which the
    consultant argues for what is false.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `DebateArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(DebateArguments, arguments)
        self._rules = Rules(protocol=chosen.protocol, verify=chosen.verify, swap=chosen.swap)

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no seed.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        seed = derive_seed(self._chosen.seed, "debate", split, index)
        case = build_case(seed)
        payload = {"seed": seed, "kind": f"{case.truth} is right"}
        return Task(environment="debate", prompt=describe(case), payload=payload)

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `DebateEnvironment`."""
        return DebateEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        naive = NaivePolicy(right=self._chosen.naive_right, fabricated=self._chosen.naive_fabricated)
        return choose_policy(name, {"oracle": BestPolicy(), "random": RandomPolicy(), "naive": naive})

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies."""
        return take_texts(self._read, count)

    def _read(self, index: int) -> Iterator[str]:
        case, random = build_case(self.task("train", index).payload["seed"]), Random(index)
        quotes = draw_quotes(case, NUM_GIVEN, random)
        for side in SIDES:
            yield build_quote_prompt(case, side, quotes[: random.randrange(NUM_GIVEN)])[0].text
            yield f" {case.list_support(side)[-1]}"
        yield build_verdict_prompt([case.show(quote) for quote in quotes])[0].text
        yield f" {case.truth}"
