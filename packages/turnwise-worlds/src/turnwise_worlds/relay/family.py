"""Divided facts as an environment family: tasks, environments and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Message, Task
from turnwise.environments.generated import GeneratedFamily
from turnwise_worlds.relay.arguments import RelayArguments
from turnwise_worlds.relay.environment import (
    RelayEnvironment,
    build_answer,
    build_ask,
    build_tell,
    describe,
    read_message,
)
from turnwise_worlds.relay.facts import NONE, build_puzzle
from turnwise_worlds.relay.policies import RandomPolicy, TalkingPolicy


class Relay(GeneratedFamily[RelayArguments]):
    """Questions of which each of two agents knows half. Tasks do not depend on the channel."""

    name = "relay"
    section = RelayArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless and share no seed."""
        seed = derive_seed(self._chosen.seed, "relay", split, index)
        return describe(build_puzzle(seed)), {"seed": seed}

    def build_environment(self, task: Task) -> RelayEnvironment:
        """Build a fresh, single-use `RelayEnvironment`."""
        return RelayEnvironment(self._chosen)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        naive = TalkingPolicy(self._chosen.naive_right)
        return {"oracle": TalkingPolicy(1.0), "random": RandomPolicy(), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompts and right replies."""
        task = self.task("train", index)
        oracle, puzzle, heard = self.policy("oracle"), build_puzzle(task.payload["seed"]), NONE
        prompts: list[tuple[Message, ...]] = [build_ask(puzzle)]
        for build in (build_tell, build_answer):
            heard = read_message(oracle.reply(task, prompts[-1], Random(0)))
            prompts.append(build(puzzle, heard))
        for prompt in prompts:
            yield prompt[0].text
            yield f" {read_message(oracle.reply(task, prompt, Random(0)))}"
