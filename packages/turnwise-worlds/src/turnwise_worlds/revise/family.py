"""Sums that are answered twice as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.revise.arguments import ReviseArguments
from turnwise_worlds.revise.environment import LOOK_AGAIN, ReviseEnvironment, build_prompt
from turnwise_worlds.revise.policies import TwicePolicy
from turnwise_worlds.revise.sums import Problems, find_answer, split_problems, write_work


class Revise(GeneratedFamily[ReviseArguments]):
    """A few training problems that repeat, and fresh ones for testing."""

    name = "revise"
    section = ReviseArguments

    @cached_property
    def _problems(self) -> Problems:
        return split_problems(self._chosen.seed, self._chosen.problems)

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; the problems of a split repeat in turn, and a share of the training tasks is practice."""
        problems = self._problems.training if split == "train" else self._problems.fresh
        if split == "train" and rng(self._chosen.seed, "revise", "practice", index).random() < self._chosen.practice:
            problems = self._problems.practice
        digits = problems[index % len(problems)]
        payload = {"index": index, "digits": list(digits), "is_training": problems is self._problems.training}
        return build_prompt(digits), payload

    def build_environment(self, task: Task) -> ReviseEnvironment:
        """Build a fresh, single-use `ReviseEnvironment`; with `show_training`, a training problem replaces the
        task's."""
        digits = tuple(task.payload["digits"])
        if self._chosen.show_training:
            digits = self._problems.training[task.payload["index"] % len(self._problems.training)]
        return ReviseEnvironment(self._chosen, digits)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        chosen = self._chosen
        return {
            "oracle": TwicePolicy(known=1.0, known_others=1.0, works=1.0, slip=0.0),
            "random": TwicePolicy(known=0.0, known_others=0.0, works=1.0, slip=1.0),
            "naive": TwicePolicy(
                known=chosen.naive_known, known_others=0.0, works=chosen.naive_work, slip=chosen.naive_slip
            ),
        }

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompt, work and right answer of a training problem."""
        digits = self._problems.training[index % len(self._problems.training)]
        yield build_prompt(digits)[0].text
        yield f" {write_work(digits)}"
        yield f" {find_answer(digits)}"
        yield LOOK_AGAIN.text
