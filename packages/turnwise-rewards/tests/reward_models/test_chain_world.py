"""The chain world: its rules by hand, and its exact values against samples."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from turnwise.core.protocols import ForkableEnvironment, StatefulEnvironment
from turnwise.core.types import Scored, StopReason, Task, text_message
from turnwise.environments.replies import answer_message
from turnwise.testing import CheckPlan, check_environment
from turnwise_rewards.reward_models.chain import Chain, ChainEnvironment, apply, read_value

TASK = Task(environment="chain", prompt=(text_message("user", " 3 A C B"),), payload={"start": 3, "operations": "ACB"})


def play(*values: str) -> tuple[list[str], Scored]:
    async def run() -> tuple[list[str], Scored]:
        environment = ChainEnvironment()
        await environment.reset(TASK, 0)
        shown = []
        for value in values:
            result = await environment.step(answer_message(value))
            shown += [message.text for message in result.observations]
            if result.done:
                break
        reward = await environment.score([], StopReason.DONE)
        assert isinstance(reward, Scored)
        return shown, reward

    return asyncio.run(run())


def test_operations_are_modulo_7() -> None:
    # 6 + 2 = 8 = 1; 6 * 3 = 18 = 4; 6 * 6 = 36 = 1; 4 - 6 = -2 = 5
    assert [apply(operation, 6) for operation in "ABCD"] == [1, 4, 1, 5]


def test_a_wrong_value_is_carried_on_and_a_square_may_forgive_it() -> None:
    # 3 A: 5; 5 C: 25 = 4; 4 B: 12 = 5.
    shown, reward = play("5", "4", "5")
    assert shown == [" 5 C B", " 4 B"]
    assert (reward.total, reward.part("process")) == (1.0, 1.0)
    # 2 is a slip, but 2 * 2 = 4 = 5 * 5: the end is right, the process is not.
    shown, reward = play("2", "4", "5")
    assert (shown[0], reward.total, reward.part("process")) == (" 2 C B", 1.0, 0.0)
    assert play("5", "3", "2")[1].total == 0.0
    assert play("5", "nothing") == ([" 5 C B"], play("5", "nothing")[1])
    assert play("5", "nothing")[1].total == 0.0


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("7", None), ("12", None), ("", None), ("-1", None), ("²", None)]
)
def test_a_reply_states_one_digit_below_7(text: str, value: int | None) -> None:
    assert read_value(answer_message(text)) == value


def test_a_fork_goes_its_own_way() -> None:
    async def run() -> list[float]:
        environment = ChainEnvironment()
        await environment.reset(TASK, 0)
        await environment.step(answer_message("5"))
        twin = await environment.fork()
        assert environment.state_hash() == twin.state_hash() == "5 C B"
        totals = []
        for each, values in ((environment, "45"), (twin, "33")):
            for value in values:
                await each.step(answer_message(value))
            reward = await each.score([], StopReason.DONE)
            assert isinstance(reward, Scored)
            totals.append(reward.total)
        return totals

    assert asyncio.run(run()) == [1.0, 0.0]
    assert isinstance(ChainEnvironment(), ForkableEnvironment)
    assert isinstance(ChainEnvironment(), StatefulEnvironment)


def test_the_family_passes_the_check_of_environments() -> None:
    lines = check_environment(Chain, plan=CheckPlan(num_tasks=10))
    assert not [line for line in lines if line.verdict == "fail"]


def test_every_task_belongs_to_one_split() -> None:
    family = Chain(steps=2)
    heldout = {family.task("heldout", index).id for index in range(28)}
    train = {family.task("train", index).id for index in range(84)}
    assert (len(heldout), len(train)) == (28, 84)
    assert not heldout & train
    with pytest.raises(IndexError, match="held-out task 28 does not exist: there are 28"):
        family.task("heldout", 28)


def test_the_naive_policy_slips_as_often_as_it_says() -> None:
    policy, random = Chain(slip=0.25).policy("naive"), Random(0)
    said = [read_value(policy.reply(TASK, TASK.prompt, random)) for _ in range(2000)]
    assert sum(value != 5 for value in said) / 2000 == pytest.approx(0.25, abs=0.03)
    assert None not in said
