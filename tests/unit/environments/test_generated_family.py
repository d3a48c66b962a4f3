"""What a family of generated tasks gets from its base."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from pydantic import Field

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, EnvironmentFamily, ScriptedPolicy, Split
from turnwise.core.types import Message, RewardPart, Scored, Task, text_message
from turnwise.environments.arguments import FamilyArguments
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.texts import mix_texts


class CountArguments(FamilyArguments):
    step: int = Field(2, ge=1)


class Silent:
    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return text_message("assistant", "")


class Counting(GeneratedFamily[CountArguments]):
    name = "counting"
    section = CountArguments

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        number = index * self._chosen.step + (split == "heldout")
        return (text_message("user", f"after {number}"),), {"number": number}

    def build_environment(self, task: Task) -> Environment:
        raise NotImplementedError

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        return {"random": Silent()}

    def sample_texts(self, index: int) -> Iterator[str]:
        prompt = self.task("train", index).prompt
        yield prompt[0].text
        yield f"so {index}"


def test_task_has_the_family_s_name_and_what_was_generated() -> None:
    family = Counting(step=3)
    task = family.task("heldout", 4)  # 4 * 3 + 1
    assert (task.environment, task.prompt[0].text, task.payload) == ("counting", "after 13", {"number": 13})
    assert isinstance(family, EnvironmentFamily)


def test_split_index_policy_and_argument_are_refused_by_name() -> None:
    family = Counting()
    with pytest.raises(IndexError, match="task -1 of split 'train'"):
        family.task("train", -1)
    with pytest.raises(ConfigError, match="split 'test' is unknown"):
        family.task("test", 0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="policy 'oracle' is unknown; use one of random"):
        family.policy("oracle")
    with pytest.raises(ConfigError, match="steps=3: unknown argument; did you mean 'step'"):
        Counting(steps=3)


def test_texts_are_those_of_the_first_tasks() -> None:
    assert Counting().texts(3) == ["after 0", "so 0", "after 2"]


def test_mixed_texts_are_drawn_from_whole_tasks_and_every_count_fits() -> None:
    def read(index: int) -> list[str]:
        return [f"{index}{letter}" for letter in "abc"]

    whole = ["0a", "0b", "0c", "1a", "1b", "1c"]
    assert sorted(mix_texts(read, 6, seed=0)) == whole
    four = mix_texts(read, 4, seed=0)  # 3 of the first task are too few: drawn from the 6 of two
    assert len(four) == 4
    assert {text for seed in range(20) for text in mix_texts(read, 4, seed)} == set(whole)  # not only the first four
    assert mix_texts(read, 4, seed=0) == four != mix_texts(read, 4, seed=1)


def test_reward_of_parts_by_name_counts_a_truth_as_1() -> None:
    parts = (RewardPart(name="success", value=1.0), RewardPart(name="late", value=0.5))
    assert Scored.of(0.25, {"success": True, "late": 0.5}) == Scored(total=0.25, parts=parts)
