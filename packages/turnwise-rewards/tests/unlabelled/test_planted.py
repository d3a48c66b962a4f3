"""Questions with planted answers: the same tasks always, the planted shares, the environment's rewards."""

import asyncio
from collections import Counter
from random import Random

import pytest

from turnwise.core.errors import ConfigError
from turnwise.core.types import Scored, StopReason, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_rewards.unlabelled.planted import Planted


def test_both_splits_ask_the_same_questions_and_repeat() -> None:
    family = Planted(num_questions=5, seed=3)
    train = [family.task("train", index) for index in range(7)]
    heldout = [family.task("heldout", index) for index in range(5)]
    assert [task.prompt[0].text for task in train] == [f" item{i}" for i in (0, 1, 2, 3, 4, 0, 1)]
    assert [task.payload["answer"] for task in train[:5]] == [task.payload["answer"] for task in heldout]
    assert Planted(num_questions=5, seed=3).task("train", 6) == train[6]
    assert len({Planted(seed=seed).task("train", 0).payload["answer"] for seed in range(20)}) > 5
    with pytest.raises(IndexError, match="held-out question 5 does not exist"):
        family.task("heldout", 5)


def test_the_demonstrator_draws_from_the_planted_distribution() -> None:
    family = Planted(right=0.3, trap=0.55, seed=1)
    task, question, random = family.task("train", 4), family.question(4), Random(0)
    said = Counter(extract_answer(family.policy("naive").reply(task, task.prompt, random).text) for _ in range(4000))
    assert said[question.right] / 4000 == pytest.approx(0.3, abs=0.03)
    assert said[question.trap] / 4000 == pytest.approx(0.55, abs=0.03)
    assert set(said) <= {question.right, question.trap, *question.others}
    assert len(question.others) == 48  # six first words that neither answer begins with, eight second words
    assert question.right.split()[0] not in {answer.split()[0] for answer in (question.trap, *question.others)}


def test_the_environment_pays_for_the_right_answer_only() -> None:
    family = Planted()
    task, question = family.task("train", 2), family.question(2)

    def score(text: str) -> Scored:
        environment = family.build_environment(task)
        reward = asyncio.run(environment.score([text_message("assistant", text)], StopReason.DONE))
        assert isinstance(reward, Scored)
        return reward

    assert score(f"<answer> {question.right.upper()} </answer>") == Scored.of(1.0, {"success": 1.0, "answered": 1.0})
    assert score(f"<answer> {question.trap} </answer>") == Scored.of(0.0, {"success": 0.0, "answered": 1.0})
    assert score(question.right) == Scored.of(0.0, {"success": 0.0, "answered": 0.0})


def test_shares_above_one_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"right=0\.6 and trap=0\.5 are more than 1 together"):
        Planted(right=0.6, trap=0.5)
