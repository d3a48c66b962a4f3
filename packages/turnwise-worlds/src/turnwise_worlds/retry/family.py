"""Calls with a second attempt as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.retry.arguments import RetryArguments
from turnwise_worlds.retry.conventions import build_call, convert, spell
from turnwise_worlds.retry.environment import UNKNOWN, RetryEnvironment, build_attempt, build_reflection
from turnwise_worlds.retry.policies import RandomPolicy, ReadingPolicy


class Retry(GeneratedFamily[RetryArguments]):
    """Calls of a service that does not reveal its convention, with one retry."""

    name = "retry"
    section = RetryArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless, and training shares no letters with held-out tasks."""
        seed, held_out = derive_seed(self._chosen.seed, "retry", split, index), split != "train"
        prompt = build_attempt(build_call(seed, held_out=held_out).letters, UNKNOWN)
        return prompt, {"seed": seed, "held_out": held_out}

    def build_environment(self, task: Task) -> RetryEnvironment:
        """Build a fresh, single-use `RetryEnvironment`."""
        return RetryEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = ReadingPolicy(self._chosen.naive_insight)
        return {"oracle": ReadingPolicy(1.0), "random": RandomPolicy(), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompts and right replies."""
        task = self.task("train", index)
        call = build_call(task.payload["seed"], held_out=task.payload["held_out"])
        sent = spell(convert(call.letters, UNKNOWN))
        for prompt in (
            build_attempt(call.letters, UNKNOWN),
            build_reflection(call.letters, sent, call.example),
            build_attempt(call.letters, call.convention),
        ):
            yield prompt[0].text
            yield f" {self.policy('oracle').reply(task, prompt, Random(0)).text}"
