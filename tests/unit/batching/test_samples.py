"""Masks, branches and packing: every sampled token trains exactly once, nothing else does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.batching.collate import collate
from turnwise.batching.pack import plan_micro_batches
from turnwise.batching.samples import to_samples, unmask_observations
from turnwise.core.types import Completion, FinishReason, Scored, StopReason, Trajectory, Turn, text_message, to_floats, to_ids


def turn(parent: int | None, context: list[int], sampled: list[int]) -> Turn:
    return Turn(
        parent=parent,
        context_ids=to_ids(context),
        completion=Completion(
            token_ids=to_ids(sampled),
            logprobs=to_floats([-token / 10 for token in sampled]),
            finish_reason=FinishReason.STOP,
            version_first=3,
            version_last=4,
        ),
        message=text_message("assistant", ""),
    )


def trajectory(*turns: Turn) -> Trajectory:
    return Trajectory(task_id="t", group_id="g", member=0, turns=turns, stop=StopReason.DONE, reward=Scored(total=1.0))


def test_the_worked_example_of_two_turns() -> None:
    (sample,) = to_samples(trajectory(turn(None, [1, 2, 3], [4, 5]), turn(0, [6, 7, 8], [9])), advantage=0.5)
    assert sample.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert sample.loss_mask.tolist() == [False] * 3 + [True] * 2 + [False] * 3 + [True]
    assert sample.context_mask.tolist() == [False] * 5 + [True] * 3 + [False]
    assert sample.behavior_logprobs.tolist() == pytest.approx([0, 0, 0, -0.4, -0.5, 0, 0, 0, -0.9])
    assert sample.advantages.tolist() == [0, 0, 0, 0.5, 0.5, 0, 0, 0, 0.5]
    assert (sample.version_first, sample.version_last) == (3, 4)


def test_a_turn_shared_by_two_branches_trains_once() -> None:
    #      0 (root) --- 1
    #               \-- 2
    samples = to_samples(trajectory(turn(None, [1], [2]), turn(0, [3], [4]), turn(0, [5], [6])), advantage=1.0)
    assert [s.token_ids.tolist() for s in samples] == [[1, 2, 3, 4], [1, 2, 5, 6]]
    assert [s.loss_mask.tolist() for s in samples] == [[False, True, False, True], [False, False, False, True]]
    assert [s.origin.branch for s in samples] == [0, 1]


def test_unmasking_trains_observations_but_not_the_prompt() -> None:
    (sample,) = unmask_observations(to_samples(trajectory(turn(None, [1, 2], [3]), turn(0, [4, 5], [6])), advantage=-1.0))
    assert sample.loss_mask.tolist() == [False, False, True, True, True, True]
    assert np.isnan(sample.behavior_logprobs).tolist() == [False, False, False, True, True, False]
    assert sample.advantages.tolist() == [0, 0, -1, -1, -1, -1]


trees = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=8)


@settings(max_examples=50)
@given(trees)
def test_every_sampled_token_trains_exactly_once_in_any_tree(shape: list[tuple[int, int, int]]) -> None:
    turns, token = [], 0
    for index, (parent, num_context, num_sampled) in enumerate(shape):
        context = list(range(token, token + num_context + (index == 0)))
        token += len(context)
        sampled = list(range(token, token + num_sampled))
        token += num_sampled
        turns.append(turn(None if index == 0 else parent % index, context, sampled))
    samples = to_samples(trajectory(*turns), advantage=1.0)
    trained = sorted(t for s in samples for t in s.token_ids[s.loss_mask].tolist())
    assert trained == sorted(t for one in turns for t in one.completion.token_ids.tolist())
    for sample in samples:
        assert not sample.loss_mask[0]


def test_collate_shifts_once_inside_each_sample() -> None:
    first = to_samples(trajectory(turn(None, [10, 11], [12])), advantage=1.0)
    second = to_samples(trajectory(turn(None, [13], [14])), advantage=2.0)
    batch = collate([*first, *second])
    assert batch.token_ids.tolist() == [10, 11, 12, 13, 14]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1]
    assert batch.predict_at.tolist() == [1, 3]
    assert batch.targets.tolist() == [12, 14]
    assert batch.advantages.tolist() == [1.0, 2.0]
    assert batch.behavior_logprobs.tolist() == pytest.approx([-1.2, -1.4])


@settings(max_examples=50)
@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60))
def test_the_plan_holds_every_sample_once_within_the_budget(lengths: list[int], budget: int) -> None:
    plan = plan_micro_batches(lengths, budget)
    assert [i for part in plan for i in part] == list(range(len(lengths)))
    for part in plan:
        assert len(part) == 1 or sum(lengths[i] for i in part) <= budget
