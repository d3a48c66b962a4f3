"""Sums that are answered twice as an environment family: tasks, environments and policies."""

from __future__ import annotations

from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.revise.arguments import ReviseArguments
from turnwise.environments.revise.environment import LOOK_AGAIN, ReviseEnvironment, Rules, build_prompt
from turnwise.environments.revise.policies import TwicePolicy
from turnwise.environments.revise.sums import find_answer, split_problems, write_work


class Revise:
    """A few training problems over and over, and fresh ones to be tested on.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `ReviseArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(ReviseArguments, arguments)
        self._rules = Rules(
            first_reward=chosen.first_reward, progress_reward=chosen.progress_reward, measure=chosen.measure
        )
        self._problems = split_problems(chosen.seed, chosen.problems)

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split, whose problems come again in turn; a share of the training tasks is practice.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        problems = self._problems.training if split == "train" else self._problems.fresh
        if split == "train" and rng(self._chosen.seed, "revise", "practice", index).random() < self._chosen.practice:
            problems = self._problems.practice
        digits = problems[index % len(problems)]
        payload = {"index": index, "digits": digits, "is_training": problems is self._problems.training}
        return Task(environment="revise", prompt=build_prompt(digits), payload=payload)

    def build_environment(self, task: Task) -> ReviseEnvironment:
        """A fresh, single-use `ReviseEnvironment`; with `show_training`, of a training problem in the task's place."""
        digits = tuple(task.payload["digits"])
        if self._chosen.show_training:
            digits = self._problems.training[task.payload["index"] % len(self._problems.training)]
        return ReviseEnvironment(self._rules, digits)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        chosen = self._chosen
        return choose_policy(
            name,
            {
                "oracle": TwicePolicy(known=1.0, known_others=1.0, works=1.0, slip=0.0),
                "random": TwicePolicy(known=0.0, known_others=0.0, works=1.0, slip=1.0),
                "naive": TwicePolicy(
                    known=chosen.naive_known, known_others=0.0, works=chosen.naive_work, slip=chosen.naive_slip
                ),
            },
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts, work and right replies."""
        texts: list[str] = []
        for digits in self._problems.training:
            texts += [
                build_prompt(digits)[0].text,
                f" {write_work(digits)}",
                f" {find_answer(digits)}",
                LOOK_AGAIN.text,
            ]
        return (texts * (count // len(texts) + 1))[:count]
