"""The core types: identity, read-only data, branches, and what they refuse."""

import dataclasses
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core import types
from turnwise.core.types import (
    Completion,
    FinishReason,
    Invalid,
    Origin,
    RewardPart,
    Sample,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryId,
    text_message,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.testing import make_group, make_trajectory, make_turn


def build(*parents: int | None) -> Trajectory:
    """Turns with these parents; the k-th has k sampled tokens."""
    return make_trajectory(*(make_turn([], range(index + 1), parent=parent) for index, parent in enumerate(parents)))


@pytest.mark.parametrize("make", [to_ids, to_floats, to_mask])
def test_token_data_is_a_read_only_copy(make) -> None:
    source = np.array([1, 0, 1])
    array = make(source)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    source[0] = 0
    assert array[0] == 1
    assert make([]).shape == (0,)


def test_a_task_is_its_content() -> None:
    def task(question: str, answer: str) -> Task:
        return Task(environment="e", prompt=(text_message("user", question),), payload={"answer": answer, "n": 1})

    same = Task(environment="e", prompt=(text_message("user", "q"),), payload={"n": 1, "answer": "a"})
    assert task("q", "a").id == same.id  # the order of keys is not content
    assert len({task("q", "a").id, task("q", "b").id, task("r", "a").id}) == 3
    assert dataclasses.replace(same, id="mine").id == "mine"


def test_every_core_type_is_frozen_and_has_no_instance_dict() -> None:
    classes = [value for value in vars(types).values() if inspect.isclass(value) and dataclasses.is_dataclass(value)]
    assert len(classes) > 10
    for value in classes:
        assert vars(value)["__dataclass_params__"].frozen, value
        assert "__slots__" in vars(value), value


@pytest.mark.parametrize(
    ("parents", "branches"),
    [
        ([], []),
        ([None], [(0,)]),
        ([None, 0, 1], [(0, 1, 2)]),
        ([None, 0, 0], [(0, 1), (0, 2)]),  # two continuations of one turn
        ([None, 0, None, 2], [(0, 1), (2, 3)]),  # two roots
        ([None, 0, 1, 0, 3, 3], [(0, 1, 2), (0, 3, 4), (0, 3, 5)]),
    ],
)
def test_branches_by_hand(parents: list[int | None], branches: list[tuple[int, ...]]) -> None:
    assert build(*parents).branches() == branches


@given(st.data(), st.integers(1, 8))
def test_branches_cover_every_turn_and_follow_parents(data: st.DataObject, count: int) -> None:
    parents = [None, *(data.draw(st.none() | st.integers(0, index - 1)) for index in range(1, count))]
    branches = build(*parents).branches()
    assert {turn for branch in branches for turn in branch} == set(range(count))
    for branch in branches:
        assert [parents[turn] for turn in branch] == [None, *branch[:-1]]
    assert len({branch[-1] for branch in branches}) == len(branches)


def test_sampled_tokens_count_every_turn_once() -> None:
    assert build(None, 0, 0).num_sampled_tokens == 1 + 2 + 3


def test_an_invalid_reward_is_none_and_never_zero() -> None:
    failed = make_trajectory(reward=Invalid(reason="the tool hung", retryable=True), member=1)
    assert make_group(make_trajectory(), failed).rewards() == [1.0, None]


def test_an_absent_part_is_none() -> None:
    reward = Scored(total=0.0, parts=(RewardPart(name="success", value=0.0),))
    assert (reward.part("success"), reward.part("format")) == (0.0, None)


@pytest.mark.parametrize("stop", list(StopReason))
def test_a_stop_is_done_or_cut_or_a_limit_or_a_failure(stop: StopReason) -> None:
    assert (stop in (StopReason.DONE, StopReason.CUT)) + stop.is_truncated + stop.is_error == 1


def test_completions_and_samples_refuse_arrays_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="2 token ids but 1 logprobs"):
        Completion(
            token_ids=to_ids([1, 2]),
            logprobs=to_floats([0]),
            finish_reason=FinishReason.STOP,
            version_first=0,
            version_last=0,
        )

    def sample(mask: list[bool], advantages: list[float]) -> Sample:
        return Sample(
            token_ids=to_ids([1, 2]),
            loss_mask=to_mask(mask),
            behavior_logprobs=to_floats([0, 0]),
            advantages=to_floats(advantages),
            version_first=0,
            version_last=0,
            origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id="t"),
        )

    assert sample([False, True], [0, 1]).loss_mask.tolist() == [False, True]
    with pytest.raises(ValueError, match="trains its first token"):
        sample([True, True], [1, 1])
    with pytest.raises(ValueError, match="different lengths"):
        sample([False, True], [0])
