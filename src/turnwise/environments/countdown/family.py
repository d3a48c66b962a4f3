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
"""The numbers from which a task's numbers are drawn."""
MIN_TARGET = 10
HELD_OUT = 3
"""One task in this many is held out."""


class Countdown(GeneratedFamily[CountdownArguments]):
    """Targets to be reached from a few numbers; every task is solvable.

    Every possible task belongs to one split; states after the first operation can occur in both.
    """

    name = "countdown"
    section = CountdownArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; held-out tasks are all different, training tasks repeat after the last one.

        Raises IndexError past the last held-out task.
        """
        tasks = self._splits[split]
        if split == "heldout" and index >= len(tasks):
            raise IndexError(f"held-out task {index} does not exist: there are {len(tasks)}")
        numbers, target = tasks[index % len(tasks)]
        prompt = (text_message("user", f" {format_state(numbers, target)}"),)
        return prompt, {"numbers": list(numbers), "target": target}

    @cached_property
    def _splits(self) -> dict[Split, list[tuple[Numbers, int]]]:
        """Return every solvable task by split, in an order determined by the seed."""
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
        """Build a fresh, single-use `CountdownEnvironment`."""
        return CountdownEnvironment(self._chosen.limit)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        limit = self._chosen.limit
        return {
            "oracle": SightedPolicy(limit, sight=1.0),
            "random": SightedPolicy(limit, sight=0.0, sees_last=False),
            "naive": SightedPolicy(limit, sight=self._chosen.naive_sight),
        }

    def texts(self, count: int) -> list[str]:
        """Return `count` states and operations of training tasks; one sequence of random numbers determines all of
        them."""
        return take_texts(partial(self._walk, rng(self._chosen.seed, "countdown texts")), count)

    def _walk(self, random: Random, index: int) -> Iterator[str]:
        payload = self.task("train", index).payload
        left = tuple(payload["numbers"])
        while moves := list_moves(left, self._chosen.limit):
            move = random.choice(moves)
            yield f" {format_state(left, payload['target'])}"
            yield f" {move}"
            left = apply_move(left, move, self._chosen.limit) or ()
