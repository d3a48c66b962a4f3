"""Divided facts as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Message, Task
from turnwise.environments.arguments import check_index, choose_policy, read_arguments
from turnwise.environments.relay.arguments import RelayArguments
from turnwise.environments.relay.environment import (
    RelayEnvironment,
    Rules,
    build_answer,
    build_ask,
    build_tell,
    describe,
    read_message,
)
from turnwise.environments.relay.facts import NONE, build_puzzle
from turnwise.environments.relay.policies import RandomPolicy, TalkingPolicy
from turnwise.environments.texts import take_texts


class Relay:
    """A question of which each of two agents knows half.

    Implements `EnvironmentFamily`; tasks are pure functions of its arguments, and do not depend on the channel.
    """

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `RelayArguments`. Raises ConfigError naming the argument and the remedy."""
        self._chosen = chosen = read_arguments(RelayArguments, arguments)
        self._rules = Rules(
            channel=chosen.channel,
            credit=chosen.credit,
            resamples=chosen.resamples,
            max_message_words=chosen.max_message_words,
        )

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; splits have no end and share no seed.

        Raises IndexError for a negative index, ConfigError for another split.
        """
        check_index(split, index)
        seed = derive_seed(self._chosen.seed, "relay", split, index)
        return Task(environment="relay", prompt=describe(build_puzzle(seed)), payload={"seed": seed})

    def build_environment(self, task: Task) -> AskingEnvironment:
        """A fresh, single-use `RelayEnvironment`."""
        return RelayEnvironment(self._rules)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        naive = TalkingPolicy(self._chosen.naive_right)
        return choose_policy(name, {"oracle": TalkingPolicy(1.0), "random": RandomPolicy(), "naive": naive})

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts and right replies."""
        return take_texts(self._read, count)

    def _read(self, index: int) -> Iterator[str]:
        task = self.task("train", index)
        oracle, puzzle, heard = self.policy("oracle"), build_puzzle(task.payload["seed"]), NONE
        prompts: list[tuple[Message, ...]] = [build_ask(puzzle)]
        for build in (build_tell, build_answer):
            heard = read_message(oracle.reply(task, prompts[-1], Random(0)))
            prompts.append(build(puzzle, heard))
        for prompt in prompts:
            yield prompt[0].text
            yield f" {read_message(oracle.reply(task, prompt, Random(0)))}"
