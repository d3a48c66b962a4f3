"""Countdown as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import combinations_with_replacement
from random import Random
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.countdown.arguments import CountdownArguments
from turnwise.environments.countdown.arithmetic import (
    Numbers,
    apply_move,
    format_state,
    is_solvable,
    list_moves,
)
from turnwise.environments.countdown.environment import CountdownEnvironment
from turnwise.environments.countdown.policies import SightedPolicy
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.texts import take_texts

DIGITS = range(1, 10)
"""What the numbers of a task are drawn from."""
MIN_TARGET = 10
HELD_OUT = 3
"""One in so many tasks is held out."""


class Countdown(GeneratedFamily[CountdownArguments]):
    """A target to be reached from a few numbers; it can be reached in every task.

    All tasks that there are belong to one split each; states that come after the first operation are met in both.
    """

    name = "countdown"
    section = CountdownArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Held-out tasks are all different; training tasks come again after the last.

        Raises IndexError past the last held-out task.
        """
        tasks = self._splits[split]
        if split == "heldout" and index >= len(tasks):
            raise IndexError(f"held-out task {index}: there are {len(tasks)}")
        numbers, target = tasks[index % len(tasks)]
        prompt = (text_message("user", f" {format_state(numbers, target)}"),)
        return prompt, {"numbers": list(numbers), "target": target}

    @cached_property
    def _splits(self) -> dict[Split, list[tuple[Numbers, int]]]:
        """Every task that can be solved, in an order that the seed gives."""
        chosen = self._chosen
        every = [
            (numbers, target)
            for numbers in combinations_with_replacement(DIGITS, chosen.numbers)
            for target in range(MIN_TARGET, chosen.limit + 1)
            if is_solvable(numbers, target, chosen.limit)
        ]
        rng(chosen.seed, "countdown").shuffle(every)
        num_held_out = len(every) // HELD_OUT
        return {"heldout": every[:num_held_out], "train": every[num_held_out:]}

    def build_environment(self, task: Task) -> CountdownEnvironment:
        """A fresh, single-use `CountdownEnvironment`."""
        return CountdownEnvironment(self._chosen.limit)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """The policies "oracle", "random" and "naive"."""
        limit = self._chosen.limit
        return {
            "oracle": SightedPolicy(limit, sight=1.0),
            "random": SightedPolicy(limit, sight=0.0, sees_last=False),
            "naive": SightedPolicy(limit, sight=self._chosen.naive_sight),
        }

    def texts(self, count: int) -> list[str]:
        """`count` states and operations of training tasks; one order of random numbers leads through all of them."""
        return take_texts(partial(self._walk, rng(self._chosen.seed, "countdown texts")), count)

    def _walk(self, random: Random, index: int) -> Iterator[str]:
        payload = self.task("train", index).payload
        left = tuple(payload["numbers"])
        while moves := list_moves(left, self._chosen.limit):
            move = random.choice(moves)
            yield f" {format_state(left, payload['target'])}"
            yield f" {move}"
            left = apply_move(left, move, self._chosen.limit) or ()
