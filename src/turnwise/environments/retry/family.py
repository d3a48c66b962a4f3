"""Calls with a second attempt as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.retry.arguments import RetryArguments
from turnwise.environments.retry.conventions import build_call, convert, spell
from turnwise.environments.retry.environment import (
    UNKNOWN,
    RetryEnvironment,
    Rules,
    build_attempt,
    build_reflection,
)
from turnwise.environments.retry.policies import RandomPolicy, ReadingPolicy
from turnwise.environments.texts import take_texts


class Retry:
    """Calls of a service that does not tell its convention, with one retry.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `RetryArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(RetryArguments, arguments)
        self._rules = Rules(
            attempts=chosen.attempts,
            feedback=chosen.feedback,
            reflection=chosen.reflection,
            max_reflection_words=chosen.max_reflection_words,
        )

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end, and training shares no letters with held-out tasks.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        seed, held_out = derive_seed(self._chosen.seed, "retry", split, index), split != "train"
        prompt = build_attempt(build_call(seed, held_out=held_out).letters, UNKNOWN)
        return Task(environment="retry", prompt=prompt, payload={"seed": seed, "held_out": held_out})

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `RetryEnvironment`."""
        return RetryEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        return choose_policy(
            name,
            {
                "oracle": ReadingPolicy(1.0),
                "random": RandomPolicy(),
                "naive": ReadingPolicy(self._chosen.naive_insight),
            },
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies."""
        return take_texts(self._read, count)

    def _read(self, index: int) -> Iterator[str]:
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
