"""Debates as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.debate.arguments import DebateArguments
from turnwise_worlds.debate.case import SIDES, build_case, draw_quotes
from turnwise_worlds.debate.environment import (
    NUM_GIVEN,
    DebateEnvironment,
    build_quote_prompt,
    build_verdict_prompt,
    describe,
)
from turnwise_worlds.debate.policies import BestPolicy, NaivePolicy, RandomPolicy


class Debate(GeneratedFamily[DebateArguments]):
    """Cases that a judge decides from quotes.

    Tasks and texts do not depend on the protocol, so that runs of different protocols share a tokenizer. A task's kind
    is the side that is right: in a consultancy, the "B" cases are those in which the consultant argues for the wrong
    side.
    """

    name = "debate"
    section = DebateArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed."""
        seed = derive_seed(self._chosen.seed, "debate", split, index)
        case = build_case(seed)
        return describe(case), {"seed": seed, "kind": f"{case.truth} is right"}

    def build_environment(self, task: Task) -> DebateEnvironment:
        """Build a fresh, single-use `DebateEnvironment`."""
        return DebateEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = NaivePolicy(right=self._chosen.naive_right, fabricated=self._chosen.naive_fabricated)
        return {"oracle": BestPolicy(), "random": RandomPolicy(), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompts and right replies."""
        case, random = build_case(self.task("train", index).payload["seed"]), Random(index)
        quotes = draw_quotes(case, NUM_GIVEN, random)
        for side in SIDES:
            yield build_quote_prompt(case, side, quotes[: random.randrange(NUM_GIVEN)])[0].text
            yield f" {case.list_support(side)[-1]}"
        yield build_verdict_prompt([case.show(quote) for quote in quotes])[0].text
        yield f" {case.truth}"
