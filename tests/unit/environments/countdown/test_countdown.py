"""Countdown: rules, exact values, policies, forks."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Scored, StopReason
from turnwise.environments.countdown.arithmetic import (
    Move,
    apply_move,
    format_state,
    is_solvable,
    list_moves,
    parse_move,
    parse_state,
)
from turnwise.environments.countdown.environment import CountdownEnvironment
from turnwise.environments.countdown.family import Countdown
from turnwise.environments.episodes import play_episode
from turnwise.environments.replies import answer_message as say


def success(policy: str, count: int = 150) -> float:
    family = Countdown()
    total = 0.0
    for index in range(count):
        task = family.task("heldout", index)
        played = asyncio.run(play_episode(family, task, family.policy(policy), seed=index, max_turns=4))
        assert isinstance(played.reward, Scored)
        assert played.reward.part("broke_rules") == 0.0
        total += played.reward.total
    return total / count


def test_operations_are_read_and_carried_out() -> None:
    assert parse_move("5 +  3") == parse_move("3 + 5") == Move(first=3, operation="+", second=5)
    assert parse_move("3 - 5") == Move(first=3, operation="-", second=5)
    assert [parse_move(text) for text in ("3 / 5", "3 +", "", "3 + 5 + 1", "1234 + 1")] == [None] * 5
    assert apply_move((3, 5, 7), Move(first=3, operation="*", second=5), 24) == (7, 15)
    assert apply_move((3, 5, 7), Move(first=3, operation="-", second=5), 24) is None
    assert apply_move((3, 5, 7), Move(first=5, operation="*", second=7), 24) is None
    assert apply_move((3, 5, 7), Move(first=3, operation="+", second=3), 24) is None
    assert [str(move) for move in list_moves((2, 9), 17)] == ["2 + 9", "9 - 2"]


def test_exact_values_worked_out_by_hand() -> None:
    assert is_solvable((3, 8), 24, 24)
    assert not is_solvable((3, 8), 10, 24)
    assert is_solvable((1, 3, 8), 24, 24)  # 8 * 1 * 3
    assert not is_solvable((1, 1, 1), 10, 24)
    assert not is_solvable((5, 5), 25, 24)  # above the limit


@given(st.lists(st.integers(0, 24), min_size=2, max_size=4), st.integers(10, 24))
def test_a_state_is_worth_what_its_best_operation_leads_to(numbers: list[int], target: int) -> None:
    left = tuple(sorted(numbers))
    nexts = [apply_move(left, move, 24) for move in list_moves(left, 24)]
    assert is_solvable(left, target, 24) == any(is_solvable(rest, target, 24) for rest in nexts if rest is not None)
    assert parse_state(f" {format_state(left, target)}") == (left, target)


def test_what_the_policies_are_worth() -> None:
    assert success("oracle") == 1.0
    assert 0.15 < success("naive") < 0.35
    assert success("random") < 0.15


def test_splits_share_no_task() -> None:
    family = Countdown()
    heldout = [family.task("heldout", index).id for index in range(150)]
    train = [family.task("train", index).id for index in range(2000)]
    assert len(set(heldout)) == 150
    assert not set(heldout) & set(train)
    count = len(set(train))
    assert train[count : 2 * count] == train[:count]
    with pytest.raises(IndexError, match="held-out task 1000"):
        family.task("heldout", 1000)


def test_a_fork_goes_its_own_way_and_a_broken_rule_ends_the_episode() -> None:
    async def run() -> None:
        family = Countdown()
        environment: CountdownEnvironment = family.build_environment(family.task("train", 0))
        task = family.task("train", 0)
        await environment.reset(task, 0)
        twin = await environment.fork()
        before = environment.state_hash()
        good = family.policy("oracle").reply(task, task.prompt, Random(0))
        step = await twin.step(good)
        assert not step.done
        assert step.observations[0].text == f" {twin.state_hash()}"
        assert (environment.state_hash(), environment.exact_value(), twin.exact_value()) == (before, 1.0, 1.0)
        step = await environment.step(say("99 + 1"))
        reward = await environment.score([], StopReason.DONE)
        assert isinstance(reward, Scored)
        assert (step.done, reward.total, reward.part("broke_rules"), environment.exact_value()) == (True, 0.0, 1.0, 0.0)
        with pytest.raises(EnvironmentFault, match="after its episode ended"):
            await environment.step(say("1 + 1"))

    asyncio.run(run())
