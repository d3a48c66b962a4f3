"""Masks, branches and packing: every sampled token trains exactly once, nothing else does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.batching.collate import collate, split_column
from turnwise.batching.pack import plan_micro_batches
from turnwise.batching.samples import from_turns, to_samples, to_turns, unmask_observations
from turnwise.batching.weights import compute_sample_weights
from turnwise.core.types import (
    Completion,
    FinishReason,
    Scored,
    StopReason,
    Trajectory,
    TrajectoryId,
    Turn,
    text_message,
    to_floats,
    to_ids,
)


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
    return Trajectory(
        id=TrajectoryId(draw=0, member=0),
        task_id="t",
        turns=turns,
        stop=StopReason.DONE,
        reward=Scored(total=1.0),
    )


def test_the_worked_example_of_two_turns() -> None:
    (sample,) = to_samples(
        trajectory(turn(None, [1, 2, 3], [4, 5]), turn(0, [6, 7, 8], [9])), [np.full(2, 0.5), np.array([-0.25])]
    )
    assert sample.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert sample.loss_mask.tolist() == [False] * 3 + [True] * 2 + [False] * 3 + [True]
    assert sample.context_mask.tolist() == [False] * 5 + [True] * 3 + [False]
    assert sample.behavior_logprobs.tolist() == pytest.approx([0, 0, 0, -0.4, -0.5, 0, 0, 0, -0.9])
    assert sample.advantages.tolist() == [0, 0, 0, 0.5, 0.5, 0, 0, 0, -0.25]
    assert (sample.version_first, sample.version_last) == (3, 4)


def test_a_turn_shared_by_two_branches_trains_once() -> None:
    #      0 (root) --- 1
    #               \-- 2
    samples = to_samples(trajectory(turn(None, [1], [2]), turn(0, [3], [4]), turn(0, [5], [6])))
    assert [s.token_ids.tolist() for s in samples] == [[1, 2, 3, 4], [1, 2, 5, 6]]
    assert [s.loss_mask.tolist() for s in samples] == [[False, True, False, True], [False, False, False, True]]
    assert [s.origin.branch for s in samples] == [0, 1]


def test_a_shared_turn_carries_credit_and_logprobs_in_its_first_branch_only() -> None:
    attempt = trajectory(turn(None, [1], [2, 9]), turn(0, [3], [4]), turn(0, [5], [6]))
    first, second = to_samples(attempt, [np.array([0.5, -1.5]), np.array([0.25]), np.array([-0.75])])
    assert (first.token_ids.tolist(), second.token_ids.tolist()) == ([1, 2, 9, 3, 4], [1, 2, 9, 5, 6])
    assert first.advantages.tolist() == [0, 0.5, -1.5, 0, 0.25]
    assert second.advantages.tolist() == [0, 0, 0, 0, -0.75]
    assert first.behavior_logprobs.tolist() == pytest.approx([0, -0.2, -0.9, 0, -0.4])
    assert second.behavior_logprobs.tolist() == pytest.approx([0, 0, 0, 0, -0.6])


def test_unmasking_trains_observations_but_not_the_prompt() -> None:
    attempt = trajectory(turn(None, [1, 2], [3]), turn(0, [4, 5], [6]))
    (sample,) = unmask_observations(to_samples(attempt, [np.array([-1.0]), np.array([2.0])]))
    assert sample.loss_mask.tolist() == [False, False, True, True, True, True]
    assert np.isnan(sample.behavior_logprobs).tolist() == [False, False, False, True, True, False]
    assert sample.advantages.tolist() == [0, 0, -1, 2, 2, 2]


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
    samples = to_samples(trajectory(*turns))
    trained = sorted(t for s in samples for t in s.token_ids[s.loss_mask].tolist())
    assert trained == sorted(t for one in turns for t in one.completion.token_ids.tolist())
    for sample in samples:
        assert not sample.loss_mask[0]


def test_collate_shifts_once_inside_each_sample() -> None:
    first = to_samples(trajectory(turn(None, [10, 11], [12])), [np.array([1.0])])
    second = to_samples(trajectory(turn(None, [13], [14])), [np.array([2.0])])
    batch = collate(
        [*first, *second],
        columns={"weights": [np.array([0.5]), np.array([0.25])], "selected": [np.array([True]), np.array([False])]},
    )
    assert batch.token_ids.tolist() == [10, 11, 12, 13, 14]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1]
    assert batch.predict_at.tolist() == [1, 3]
    assert batch.targets.tolist() == [12, 14]
    assert batch.sequence.tolist() == [0, 1]
    assert batch.advantages.tolist() == [1.0, 2.0]
    assert batch.columns["weights"].tolist() == [0.5, 0.25]
    assert batch.columns["selected"].tolist() == [True, False]
    assert batch.behavior_logprobs.tolist() == pytest.approx([-1.2, -1.4])


@settings(max_examples=50)
@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60))
def test_the_plan_holds_every_sample_once_within_the_budget(lengths: list[int], budget: int) -> None:
    plan = plan_micro_batches(lengths, budget)
    assert [i for part in plan for i in part] == list(range(len(lengths)))
    for part in plan:
        assert len(part) == 1 or sum(lengths[i] for i in part) <= budget


@settings(max_examples=50)
@given(trees)
def test_what_was_computed_per_trained_token_returns_to_its_turn(shape: list[tuple[int, int, int]]) -> None:
    turns = [
        turn(
            None if index == 0 else parent % index,
            [0] * (num_context + (index == 0)),
            list(range(10 * index, 10 * index + num_sampled)),
        )
        for index, (parent, num_context, num_sampled) in enumerate(shape)
    ]
    attempt = trajectory(*turns)
    samples = to_samples(attempt)
    trained = [s.token_ids[s.loss_mask].astype(float) for s in samples]
    by_turn = to_turns(attempt, trained)
    assert [array.tolist() for array in by_turn] == [one.completion.token_ids.tolist() for one in turns]
    assert [array.tolist() for array in from_turns(attempt, by_turn)] == [array.tolist() for array in trained]


def test_advantages_and_columns_that_do_not_fit_are_refused() -> None:
    attempt = trajectory(turn(None, [1], [2, 3]))
    with pytest.raises(ValueError, match=r"advantages have \[1\] values per turn, but the trajectory sampled \[2\]"):
        to_samples(attempt, [np.zeros(1)])
    samples = to_samples(attempt)
    with pytest.raises(ValueError, match="column 'weights' has 3 numbers for 2 trained tokens"):
        collate(samples, columns={"weights": [np.zeros(3)]})
    with pytest.raises(ValueError, match="3 numbers for 2 trained tokens"):
        split_column(np.zeros(3), samples)
    with pytest.raises(ValueError, match="1 numbers for a trajectory of 2 sampled tokens"):
        to_turns(attempt, [np.zeros(1)])


def test_weights_of_a_step_by_hand() -> None:
    # Group g: member 0 branches (2 + 1 tokens in two samples), member 1 has 1 token. Group h: 4 tokens. 8 tokens, 4
    # sequences.
    def member(group: int, number: int, *turns: Turn) -> Trajectory:
        return Trajectory(
            id=TrajectoryId(draw=group, member=number),
            task_id="t",
            turns=turns,
            stop=StopReason.DONE,
            reward=Scored(total=1.0),
        )

    attempts = [
        member(0, 0, turn(None, [1], [2]), turn(0, [3], [4]), turn(0, [5], [6])),
        member(0, 1, turn(None, [1], [7])),
        member(1, 0, turn(None, [1], [2, 3, 4, 5])),
    ]
    samples = [sample for attempt in attempts for sample in to_samples(attempt)]
    expected = {
        "token_mean": [[1 / 8] * 2, [1 / 8], [1 / 8], [1 / 8] * 4],
        "sequence_mean": [[1 / 4 / 2] * 2, [1 / 4], [1 / 4], [1 / 4 / 4] * 4],
        "prompt_mean": [[1 / 2 / 4] * 2, [1 / 2 / 4], [1 / 2 / 4], [1 / 2 / 4] * 4],  # 4 tokens in each of 2 groups
        "trajectory_mean": [[1 / 3 / 3] * 2, [1 / 3 / 3], [1 / 3], [1 / 3 / 4] * 4],
        "constant": [[1 / 4 / 10] * 2, [1 / 4 / 10], [1 / 4 / 10], [1 / 4 / 10] * 4],
    }
    for aggregation, by_hand in expected.items():
        weights = compute_sample_weights(samples, aggregation, constant=10.0)  # type: ignore[arg-type]
        assert [w.tolist() for w in weights] == [pytest.approx(row) for row in by_hand], aggregation
    kept = np.array([True, True, True, False, True, True, True, True])
    assert compute_sample_weights(samples, "token_mean", kept=kept, rejected="out")[2].tolist() == [0.0]
    assert compute_sample_weights(samples, "token_mean", kept=kept, rejected="out")[0].tolist() == pytest.approx(
        [1 / 7] * 2
    )
