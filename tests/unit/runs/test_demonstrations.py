"""Demonstrations of the warm-up are played many at a time, and come out as if one after another."""

import asyncio
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest
from pipeline_world import Pace, WorldEnvironment, WorldFamily, make_config, make_tokenizer

from turnwise.core.errors import DataError, EnvironmentFault
from turnwise.core.protocols import StepResult
from turnwise.core.types import Message, Sample, Task, text_message
from turnwise.rendering.tags import TagRenderer
from turnwise.runs.build import System
from turnwise.runs.sft import collect_demonstrations, describe_too_long


class Demonstrator:
    """Says one word of its own random choice."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return text_message("assistant", rng.choice(["alpha", "beta", "gamma"]))


class CountingFamily(WorldFamily):
    """Counts the episodes that are open at once."""

    num_open = 0
    most_open = 0

    def build_environment(self, task: Task) -> WorldEnvironment:
        family = self

        class Counted(WorldEnvironment):
            async def step(self, message: Message) -> StepResult:
                family.num_open += 1
                family.most_open = max(family.most_open, family.num_open)
                try:
                    return await super().step(message)
                finally:
                    family.num_open -= 1

        return Counted(self, task)


def collect(family: WorldFamily, *, at_once: int, count: int = 12) -> list[Sample]:
    config = make_config(engine={"max_concurrency": at_once})
    system = SimpleNamespace(config=config, family=family, renderer=TagRenderer(make_tokenizer()), judges=None)
    return asyncio.run(collect_demonstrations(cast(System, system), Demonstrator(), count))[""]


def test_they_are_the_same_in_any_number_and_with_any_delays() -> None:
    one, many = CountingFamily(), CountingFamily(pace=Pace(environment_s=0.02))
    samples = collect(one, at_once=1), collect(many, at_once=4)
    assert [sample.token_ids.tolist() for sample in samples[0]] == [sample.token_ids.tolist() for sample in samples[1]]
    assert len(samples[0]) == 12
    assert (one.most_open, many.most_open) == (1, 4)


def test_many_that_fail_end_the_others() -> None:
    def misbehave(task: Task) -> None:
        if task.payload["index"] >= 5:
            raise EnvironmentFault(f"task {task.payload['index']} cannot be played")

    family = CountingFamily(pace=Pace(environment_s=0.02), misbehave=misbehave)
    with pytest.raises(DataError, match=r"6 of 100 tasks cannot be played.*its demonstration: .*task \d+ cannot be"):
        collect(family, at_once=4, count=100)
    assert family.num_open == 0


def test_those_that_no_rollout_could_give_are_counted() -> None:
    samples = collect(WorldFamily(), at_once=1)
    lengths = [len(sample.token_ids) for sample in samples]
    longest = max(lengths)
    assert describe_too_long(samples, longest) == ""
    text = describe_too_long(samples, longest - 1)
    assert text.startswith(f"{lengths.count(longest)} of 12 demonstrated conversations are longer than rollout.max_tok")
    assert f"(the longest has {longest} tokens)" in text
