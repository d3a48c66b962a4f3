"""The expander as a family: oracle, controls, hostile replies."""

from __future__ import annotations

import asyncio

import pytest

from turnwise.core.types import Scored
from turnwise.environments.episodes import Played, play_episode
from turnwise.environments.replies import answer_message
from turnwise_synthesis.shaper.family import Expander

FAMILY = Expander(num_entities=60)


class Says:
    """Answers with one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def reply(self, task, messages, rng):
        return answer_message(self.text)


def play(policy, index: int, split="heldout") -> Played:
    """One episode."""
    task = FAMILY.task(split, index)
    return asyncio.run(play_episode(FAMILY, task, policy, seed=index, max_turns=80))


def success(name: str, count: int) -> float:
    """Share of a scripted policy's successes."""
    rewards = [play(FAMILY.policy(name), index).reward for index in range(count)]
    assert all(isinstance(reward, Scored) for reward in rewards)
    return sum(reward.total for reward in rewards if isinstance(reward, Scored)) / count


def test_the_oracle_expands_and_the_controls_do_not() -> None:
    assert success("oracle", 6) == 1.0
    assert success("random", 12) <= 0.2


def test_tasks_repeat_and_splits_share_no_name() -> None:
    assert FAMILY.task("train", 3) == Expander(num_entities=60).task("train", 3)
    assert FAMILY.task("train", 3).payload["answer"] != FAMILY.task("heldout", 3).payload["answer"]


@pytest.mark.parametrize("text", ["", "((((", "[", "a" * 5000, "\x00", "author^-1([" + "x" * 900 + "])"])
def test_hostile_replies_score_nothing(text: str) -> None:
    reward = play(Says(text), 0).reward
    assert isinstance(reward, Scored)
    assert reward.total == 0


def test_repeating_the_question_earns_nothing() -> None:
    task = FAMILY.task("heldout", 0)
    reward = play(Says(task.payload["question"]), 0).reward
    assert isinstance(reward, Scored)
    assert (reward.total, reward.part("valid"), reward.part("harder")) == (0, 1, 0)


def test_tools_answer_and_refuse() -> None:
    task = FAMILY.task("heldout", 0)
    environment = FAMILY.build_environment(task)
    asyncio.run(environment.setup(task, 0))
    assert environment.summarise(task.payload["question"]) == task.payload["answer"]
    with pytest.raises(Exception, match=r"unknown relation paints"):
        environment.summarise("paints([X])")
    assert environment.validate("[") == "invalid: it is no formal expression"
    assert task.payload["answer"] in environment.search(task.payload["answer"])


def test_sample_texts_hold_an_expansion() -> None:
    *_, last = FAMILY.sample_texts(0)
    assert last.startswith("<answer> ")
