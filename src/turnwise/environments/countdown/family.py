"""Countdown as an environment family: tasks, environments and policies."""

from __future__ import annotations

from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import rng
from turnwise.core.types import Task, text_message
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
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

DIGITS = range(1, 10)
"""What the numbers of a task are drawn from."""
MIN_TARGET = 10
HELD_OUT = 3
"""One in so many tasks is held out."""


class Countdown:
    """A target to be reached from a few numbers; it can be reached in every task.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments. All tasks that there are belong to one
    split each; states that come after the first operation are met in both.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `CountdownArguments`. Raises ConfigError naming the argument and the
        remedy."""
        self._chosen = read_arguments(CountdownArguments, arguments)

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split. Held-out tasks are all different; training tasks come again after the last.

        Raises IndexError for a negative index and past the last held-out task, ConfigError for another split.
        """
        check_index(split, index)
        tasks = self._splits[split]
        if split == "heldout" and index >= len(tasks):
            raise IndexError(f"held-out task {index}: there are {len(tasks)}")
        numbers, target = tasks[index % len(tasks)]
        prompt = (text_message("user", f" {format_state(numbers, target)}"),)
        return Task(environment="countdown", prompt=prompt, payload={"numbers": list(numbers), "target": target})

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
        count = len(every) // HELD_OUT
        return {"heldout": every[:count], "train": every[count:]}

    def build_environment(self, task: Task) -> CountdownEnvironment:
        """A fresh, single-use `CountdownEnvironment`."""
        return CountdownEnvironment(self._chosen.limit)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        limit = self._chosen.limit
        return choose_policy(
            name,
            {
                "oracle": SightedPolicy(limit, sight=1.0),
                "random": SightedPolicy(limit, sight=0.0, sees_last=False),
                "naive": SightedPolicy(limit, sight=self._chosen.naive_sight),
            },
        )

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: states and operations."""
        texts: list[str] = []
        random, index = rng(self._chosen.seed, "countdown texts"), 0
        while len(texts) < count:
            payload = self.task("train", index).payload
            left, index = tuple(payload["numbers"]), index + 1
            while moves := list_moves(left, self._chosen.limit):
                move = random.choice(moves)
                texts += [f" {format_state(left, payload['target'])}", f" {move}"]
                left = apply_move(left, move, self._chosen.limit) or ()
        return texts[:count]
