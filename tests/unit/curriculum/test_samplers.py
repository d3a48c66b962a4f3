"""Samplers against numbers computed by hand, and properties of whatever they choose."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError
from turnwise.core.seeds import uniforms
from turnwise.curriculum.choosing import draw_even, draw_weighted
from turnwise.curriculum.offered import Offered
from turnwise.curriculum.pools import PoolOptions, PoolSampler
from turnwise.curriculum.progress import ProgressOptions, ProgressSampler
from turnwise.curriculum.replay import ReplayOptions, ReplaySampler
from turnwise.curriculum.sampler import NUM_LUCKY, Choice, Sampler, TaskResult
from turnwise.curriculum.table import SAMPLERS, build_sampler
from turnwise.curriculum.value import ValueOptions, ValueSampler


def offer(*kinds: str, lookahead: int = 256) -> Offered:
    """A split with a task of each of these kinds."""

    def identify(task: int) -> tuple[str, str] | None:
        if task >= len(kinds):
            raise IndexError(task)
        return (kinds[task], f"task {task}") if kinds[task] else None

    return Offered(identify, first=0, lookahead=lookahead)


def result(task: int, *rewards: float, kind: str = "a", step: int = 1) -> TaskResult:
    return TaskResult(task=task, kind=kind, rewards=rewards, step=step)


def play(sampler: Sampler, offered: Offered, count: int, earn: Any, *, seed: int = 0) -> list[tuple[int, str]]:
    """Draw, earn and observe one task per step."""
    drawn = []
    for draw in range(count):
        choice = sampler.choose(offered, uniforms(seed * 1000 + draw, NUM_LUCKY).tolist())
        assert choice is not None
        task = offered.take_new(choice.kind) if choice.again is None else choice.again
        offered.recall(task)
        drawn.append((task, choice.pool))
        sampler.observe([result(task, *earn(task), kind=offered._kinds[task], step=draw + 1)], draw + 1)
    return drawn


def test_weights_are_lengths_on_a_line() -> None:
    weights = {"a": 1.0, "b": 0.0, "c": 3.0}  # a has [0, 1/4), c the rest
    assert [draw_weighted(weights, luck) for luck in (0.0, 0.24, 0.26, 0.999999)] == ["a", "a", "c", "c"]
    assert draw_weighted({"a": 0.0, "b": 0.0}, 0.5) is None
    assert draw_weighted({}, 0.5) is None
    assert [draw_even("abc", luck) for luck in (0.0, 0.34, 0.99)] == ["a", "b", "c"]
    assert draw_even((), 0.5) is None
    for bad in (math.nan, -1.0, math.inf):
        with pytest.raises(ValueError, match="finite and at least 0"):
            draw_weighted({"a": 1.0, "b": bad}, 0.5)


def test_tasks_change_their_pool_with_their_latest_result() -> None:
    sampler = PoolSampler(PoolOptions(new=0.25, easy=0.25, hard=0.25, easy_at=0.75, hard_at=0.25))
    offered = offer(*"aaaaaaaa")
    for task in range(4):
        offered.recall(task)
    sampler.observe([result(0, 1, 1, 1, 0), result(1, 1, 0, 0, 0), result(2, 1, 0), result(3, 0, 0)], 1)
    assert sampler.measure() == {"tasks_easy": 1, "tasks_normal": 1, "tasks_hard": 2}
    # Shares in the order new, easy, normal, hard; of the hard ones 1 and 3 the second half of [0, 1) draws 3.
    chosen = [sampler.choose(offered, [luck, 0.6, 0, 0]) for luck in (0.1, 0.3, 0.6, 0.9)]
    assert chosen == [
        Choice(pool="new"),
        Choice(pool="easy", again=0),
        Choice(pool="normal", again=2),
        Choice(pool="hard", again=3),
    ]
    sampler.observe([result(3, 1, 1)], 2)
    assert sampler.measure() == {"tasks_easy": 2, "tasks_normal": 1, "tasks_hard": 1}


def test_a_pool_without_a_free_task_gives_its_share_away() -> None:
    sampler = PoolSampler(PoolOptions(new=0.0, easy=0.5, hard=0.0))
    offered = offer("a", "a")
    offered.recall(0)
    offered.recall(1)
    sampler.observe([result(0, 1, 1), result(1, 0, 0)], 1)
    assert {sampler.choose(offered, [luck, luck, 0, 0]) for luck in (0.0, 0.5, 0.99)} == {Choice(pool="easy", again=0)}
    offered.hold(7, 0)  # only the hard one is left, whose share is 0
    assert sampler.choose(offered, [0.5, 0.5, 0, 0]) == Choice(pool="hard", again=1)
    offered.hold(8, 1)
    assert sampler.choose(offered, [0.5, 0.5, 0, 0]) is None
    offered.settle(7)
    assert sampler.choose(offered, [0.5, 0.5, 0, 0]) == Choice(pool="easy", again=0)


def test_value_is_vspos() -> None:
    sampler = ValueSampler(ValueOptions(new=0.0))
    offered = offer(*"aaaa")
    for task in range(3):
        offered.recall(task)
    # V = (1 - mean) std: 1/4 solved .75 * sqrt(3)/4 = .325, 3/4 solved .25 * sqrt(3)/4 = .108, never solved 0
    sampler.observe([result(0, 1, 0, 0, 0), result(1, 1, 1, 1, 0), result(2, 0, 0, 0, 0)], 1)
    assert [sampler.choose(offered, [0.5, luck, 0, 0]) for luck in (0.7, 0.8)] == [  # 3/4 of the line is task 0
        Choice(pool="valued", again=0),
        Choice(pool="valued", again=1),
    ]
    sampler.observe([result(0, 1, 1), result(1, 1, 1)], 2)
    assert sampler.choose(offered, [0.5, 0.5, 0, 0]) == Choice(pool="new")  # nothing has value
    with pytest.raises(ConfigError, match=r"curriculum\.options\.max_reward: .*reward 2"):
        sampler.observe([result(0, 2.0, 0.0)], 3)


def test_progress_is_the_distance_of_two_averages() -> None:
    sampler = ProgressSampler(ProgressOptions(fast=0.5, slow=0.25, floor=0.2))
    assert sampler.compute_chances(["a", "b"]) == {"a": 0.5, "b": 0.5}
    # a: 0, then 1: fast .5, slow .25, progress .25. b: 1, then 0: fast .5, slow .75, progress .25. c stays at 1.
    sampler.observe([result(0, 0), result(1, 1, kind="b"), result(2, 1, kind="c")], 1)
    sampler.observe([result(3, 1), result(4, 0, kind="b"), result(5, 1, kind="c")], 2)
    assert sampler.compute_chances(["a", "b", "c"]) == pytest.approx(
        {"a": 0.2 / 3 + 0.4, "b": 0.2 / 3 + 0.4, "c": 0.2 / 3}
    )
    assert sampler.compute_chances(["c", "d"]) == pytest.approx({"c": 0.1, "d": 0.9})  # nothing is known about d
    assert sampler.compute_chances([]) == {}


def test_replay_ranks_scores_and_ages() -> None:
    sampler = ReplaySampler(ReplayOptions(temperature=1.0, staleness=0.5))
    # Mean distance from the mean: task 0 1/2, tasks 1 and 2 none. Ranks count 1, 1/2, 1/3: of 11/6, tasks 1 and 2 share
    # the places 2 and 3.
    sampler.observe([result(0, 1, 0, step=1), result(1, 0, 0, step=1)], 1)
    sampler.observe([result(2, 1, 1, step=3)], 3)  # ages 2, 2, 0
    chances = sampler.compute_chances([0, 1, 2])
    score = {0: 6 / 11, 1: 5 / 22, 2: 5 / 22}
    age = {0: 0.5, 1: 0.5, 2: 0.0}
    assert chances == pytest.approx({task: 0.5 * score[task] + 0.5 * age[task] for task in score})
    assert math.fsum(chances.values()) == pytest.approx(1)


def test_equal_scores_are_drawn_alike_at_any_temperature() -> None:
    sampler = ReplaySampler(ReplayOptions(temperature=0.001, staleness=0.0))
    sampler.observe([result(task, 0, 0) for task in range(400)], 1)
    assert [*sampler.compute_chances(range(400)).values()] == pytest.approx([1 / 400] * 400)


def test_regret_remembers_the_best_and_the_lowest_score_leaves() -> None:
    sampler = ReplaySampler(ReplayOptions(score="regret", capacity=2))
    sampler.observe([result(0, 1, 1), result(1, 1, 0)], 1)
    sampler.observe([result(0, 0, 0, step=2), result(2, 0.5, 0.5, step=2)], 2)  # 0: best 1, mean 0; 1: 1/2; 2: 0 leaves
    assert sorted(sampler.state_dict()["archive"]) == ["0", "1"]
    assert sampler.measure() == {"tasks_archive": 2, "score": 0.75}


def test_hard_tasks_come_back_when_a_finite_split_is_used_up() -> None:
    for name in ("difficulty", "value", "plr"):
        sampler = build_sampler(name, {"capacity": 2} if name == "plr" else {})
        assert sampler is not None
        drawn = Counter(
            task for task, _ in play(sampler, offer(*"aaaaaa"), 200, lambda task: (0, 0) if task < 2 else (0, 1))
        )
        assert min(drawn[0], drawn[1]) > 3, (name, drawn)


@given(
    st.sampled_from([name for name in SAMPLERS if name != "order"]),
    st.lists(st.sampled_from(["a", "b", ""]), min_size=3, max_size=12),
    st.data(),
)
def test_whatever_is_chosen_is_offered_and_a_restored_sampler_chooses_the_same(
    name: str, kinds: list[str], data: st.DataObject
) -> None:
    sampler, offered = build_sampler(name, {}), offer(*kinds, lookahead=3)
    assert sampler is not None
    rewards = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3)
    for draw in range(data.draw(st.integers(1, 20))):
        luck = uniforms(draw, NUM_LUCKY).tolist()
        choice = sampler.choose(offered, luck)
        again = build_sampler(name, {})
        assert again is not None
        again.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
        assert again.choose(offered, luck) == choice
        if choice is None:
            assert not offered.has_new()
            assert not offered.repeats()
            break
        task = offered.take_new(choice.kind) if choice.again is None else choice.again
        assert choice.again is None or offered.is_free(task)
        assert kinds[task]
        offered.recall(task)
        if data.draw(st.booleans()):
            sampler.observe([result(task, *data.draw(rewards), kind=kinds[task], step=draw)], draw)
        else:
            offered.hold(draw, task)


def test_new_tasks_of_a_kind_are_sought_behind_the_last_one_drawn() -> None:
    offered = offer(*"aaaabaaab", lookahead=3)
    assert (offered.kinds(), offered.has_new("b")) == (["a"], False)
    offered.recall(offered.take_new("a"))
    offered.recall(offered.take_new("a"))  # tasks 0 to 4 are known
    assert (offered.take_new("b"), offered.take_new("a"), offered.take_new(None)) == (4, 2, 2)
    offered.recall(4)
    assert offered.take_new(None) == 2
    offered.leave_out(2)
    assert offered.take_new(None) == 3
    with pytest.raises(LookupError, match="no new task of kind 'c'"):
        offered.take_new("c")


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("dificulty", {}, "curriculum.sampler='dificulty' is neither one of order, uniform, difficulty"),
        ("difficulty", {"esy": 0.1}, "curriculum.options.esy is not an option of curriculum.sampler='difficulty'"),
        ("difficulty", {"new": 0.6, "easy": 0.5}, "curriculum.options: new + easy + hard is 1.2; it must be at most 1"),
        ("difficulty", {"easy_at": 0.0}, "hard_at=0 must be below easy_at=0"),
        ("progress", {"slow": 0.5}, "slow=0.5 must be below fast=0.1"),
        ("plr", {"temperature": 0}, "curriculum.options.temperature is 0"),
        ("order", {"new": 0.5}, "curriculum.options.new is not an option"),
    ],
)
def test_wrong_options_are_refused_in_one_line(name: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_sampler(name, options)
    assert error in str(refused.value)
    assert "\n" not in str(refused.value)
