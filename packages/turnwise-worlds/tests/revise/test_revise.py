"""Sums that are answered twice: problems, work, what an episode earns, what its policies are worth."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.protocols import Split
from turnwise.core.types import Message, Scored, StopReason, text_message
from turnwise.environments.episodes import play_episode
from turnwise.environments.replies import answer_message as say
from turnwise_worlds.revise.family import Revise
from turnwise_worlds.revise.sums import BASE, NUM_DIGITS, find_answer, split_problems, write_work


def test_sums_and_work_by_hand() -> None:
    assert find_answer([3, 1, 4, 5]) == 1
    assert write_work([3, 1, 4, 5]) == "3 + 1 = 4 + 4 = 2 + 5 = 1"
    assert write_work([3, 1, 4, 5], [0, 2]) == "3 + 1 = 4 + 4 = 4 + 5 = 3"


@given(st.lists(st.integers(0, BASE - 1), min_size=NUM_DIGITS, max_size=NUM_DIGITS))
def test_work_without_slips_ends_with_the_answer(digits: list[int]) -> None:
    assert write_work(digits).rpartition(" ")[2] == str(find_answer(digits))


def test_every_problem_is_of_training_of_practice_or_fresh() -> None:
    problems = split_problems(0, 64)
    lists = (problems.training, problems.practice, problems.fresh)
    assert [len(each) for each in lists] == [64, 972 - 64, 324]
    assert len({digits for each in lists for digits in each}) == BASE**NUM_DIGITS
    numbers = [sum(digit * BASE**place for place, digit in enumerate(digits)) for digits in problems.fresh]
    assert sorted(numbers) == list(range(0, BASE**NUM_DIGITS, 4))
    assert split_problems(1, 64).training != problems.training


def test_training_problems_come_again_and_practice_takes_the_place_of_some() -> None:
    problems = split_problems(0, 64)
    train = [tuple(Revise().task("train", index).payload["digits"]) for index in range(128)]
    assert train == [*problems.training, *problems.training]
    tasks = [Revise(practice=0.5).task("train", index) for index in range(400)]
    practice = [task for task in tasks if not task.payload["is_training"]]
    assert 150 < len(practice) < 250
    assert {tuple(task.payload["digits"]) for task in practice} <= set(problems.practice)
    training = [task for task in tasks if task.payload["is_training"]]
    assert {tuple(task.payload["digits"]) for task in training} <= set(problems.training)
    fresh = [Revise().task("heldout", index).payload for index in range(324)]
    assert {tuple(payload["digits"]) for payload in fresh} == set(problems.fresh)
    assert not any(payload["is_training"] for payload in fresh)


def run(first: Message, second: Message | None, **arguments: Any) -> tuple[float | None, Scored]:
    """The first answer's turn reward, and the episode's reward, for the problem 3 1 4 5 (answer 1)."""

    async def episode() -> tuple[float | None, Scored]:
        family = Revise(**arguments)
        task = family.task("heldout", 0)
        task = replace(task, payload={**task.payload, "digits": (3, 1, 4, 5)})
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        told = await environment.step(first)
        assert not told.done
        if second is not None:
            assert (await environment.step(second)).done
        reward = await environment.score([], StopReason.DONE)
        assert isinstance(reward, Scored)
        return told.scores.reward, reward

    return asyncio.run(episode())


RIGHT, WRONG = say("1"), say("4")


@pytest.mark.parametrize(
    ("first", "second", "turn_reward", "total", "true_measures"),
    [
        (RIGHT, RIGHT, 2.0, 1.0, {"first", "second"}),
        (WRONG, RIGHT, 0.0, 11.0, {"second", "fixed", "edited"}),
        (RIGHT, WRONG, 2.0, -10.0, {"first", "broken", "edited"}),
        (WRONG, say("5", reasoning="3 + 1 = 5"), 0.0, 0.0, {"edited"}),
        (say("1", reasoning="3 + 1 = 4 + 4 = 2 + 5 = 1"), RIGHT, 0.0, 11.0, {"second", "fixed", "edited"}),
        (RIGHT, None, 2.0, -10.0, {"first", "broken"}),
    ],
)
def test_what_an_episode_earns(
    first: Message, second: Message | None, turn_reward: float, total: float, true_measures: set[str]
) -> None:
    given, reward = run(first, second, first_reward=2.0, progress_reward=10.0)
    assert (given, reward.total) == (turn_reward, total)
    assert {part.name for part in reward.parts if part.value and part.name != "success"} == true_measures


def test_success_is_what_is_measured() -> None:
    for measure in ("first", "second", "fixed", "broken", "edited"):
        _, reward = run(WRONG, RIGHT, measure=measure)
        assert reward.part("success") == reward.part(measure)


def mean(policy: str, measure: str, split: Split = "train") -> float:
    family = Revise(measure=measure)

    async def play(index: int) -> float:
        task = family.task(split, index)
        reward = (await play_episode(family, task, family.policy(policy), seed=index, max_turns=2)).reward
        assert isinstance(reward, Scored)
        return reward.part("success") or 0.0

    return sum(asyncio.run(play(index)) for index in range(400)) / 400


def test_what_the_policies_are_worth() -> None:
    assert mean("oracle", "first", "heldout") == mean("oracle", "second", "heldout") == 1.0
    assert 0.1 < mean("random", "first") < 0.24  # One digit of six.
    assert 0.6 < mean("naive", "first") < 0.73  # 0.6 + 0.4 / 6
    assert 0.1 < mean("naive", "first", "heldout") < 0.24
    # Repeats seven times in ten; else 0.88 ** 3 = 0.68, and the slips that make up for each other.
    assert 0.6 < mean("naive", "second") < 0.74
    assert 0.25 < mean("naive", "second", "heldout") < 0.4
    assert 0.1 < mean("naive", "edited") < 0.22


def test_a_control_plays_training_problems() -> None:
    family, control = Revise(), Revise(show_training=True)
    task = family.task("heldout", 70)
    opening = asyncio.run(control.build_environment(task).reset(task, 0))
    assert opening.messages == family.task("train", 70).prompt != task.prompt


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="measure='third'"):
        Revise(measure="third")
    with pytest.raises(ConfigError, match="problems=325"):
        Revise(problems=325)

    async def answer_thrice() -> None:
        task = Revise().task("train", 0)
        environment = Revise().build_environment(task)
        await environment.reset(task, 0)
        for _ in range(3):
            await environment.step(RIGHT)

    with pytest.raises(EnvironmentFault, match="got a third answer"):
        asyncio.run(answer_thrice())


def test_the_policy_that_answers_twice_repeats_what_it_said() -> None:
    family = Revise(naive_work=0.0)
    messages = [*family.task("train", 0).prompt, WRONG, text_message("user", " look again")]
    assert family.policy("naive").reply(family.task("train", 0), messages, Random(0)) == WRONG
