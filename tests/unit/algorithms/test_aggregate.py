"""Weights of every aggregation by hand, their identities, and what rejected tokens do to denominators."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.aggregate import AGGREGATIONS, Aggregation, compute_weights

# Five sequences of 2, 1, 3, 0, 2 tokens; prompts a a b b b; trajectories 0 1 2 2 2.
SEQUENCE = np.array([0, 0, 1, 2, 2, 2, 4, 4])
PROMPTS, TRAJECTORIES = np.array([5, 5, 9, 9, 9]), np.array([0, 1, 2, 2, 2])
KEPT = np.array([True, False, False, True, True, True, True, True])


def weigh(mode: Aggregation, **options: object) -> list[float]:
    weights = compute_weights(
        mode,
        sequence_of_token=SEQUENCE,
        prompt_of_sequence=PROMPTS,
        trajectory_of_sequence=TRAJECTORIES,
        **options,  # type: ignore[arg-type]
    )
    return list(weights.tolist())


def test_weights_by_hand() -> None:
    # 8 tokens; 4 sequences with tokens (the empty one does not count); prompts of 3 and 5 tokens; trajectories of 2, 1,
    # 5.
    assert weigh("token_mean") == pytest.approx([1 / 8] * 8)
    assert weigh("sequence_mean") == pytest.approx([1 / 8] * 2 + [1 / 4] + [1 / 12] * 3 + [1 / 8] * 2)
    assert weigh("sequence_sum") == pytest.approx([1 / 4] * 8)
    assert weigh("prompt_mean") == pytest.approx([1 / 6] * 3 + [1 / 10] * 5)
    assert weigh("trajectory_mean") == pytest.approx([1 / 6] * 2 + [1 / 3] + [1 / 15] * 5)
    assert weigh("constant", constant=10.0) == pytest.approx([1 / 40] * 8)


def test_rejected_tokens_stay_in_the_denominator_or_leave_it() -> None:
    # Token 1 of sequence 0 and all of sequence 1 are rejected: 6 of 8 tokens, 3 of 4 sequences remain.
    assert weigh("token_mean", kept=KEPT, rejected="in") == pytest.approx([1 / 8, 0, 0] + [1 / 8] * 5)
    assert weigh("token_mean", kept=KEPT, rejected="out") == pytest.approx([1 / 6, 0, 0] + [1 / 6] * 5)
    assert weigh("sequence_mean", kept=KEPT, rejected="in") == pytest.approx([1 / 8, 0, 0] + [1 / 12] * 3 + [1 / 8] * 2)
    assert weigh("sequence_mean", kept=KEPT, rejected="out") == pytest.approx([1 / 3, 0, 0] + [1 / 9] * 3 + [1 / 6] * 2)
    assert weigh("constant", constant=2.0, kept=KEPT, rejected="out") == pytest.approx([1 / 6, 0, 0] + [1 / 6] * 5)


@pytest.mark.parametrize("mode", sorted(AGGREGATIONS))
def test_rejecting_everything_gives_zero_weights_and_so_does_an_empty_step(mode: Aggregation) -> None:
    for rejected in ("in", "out"):
        assert weigh(mode, kept=np.zeros(8, dtype=bool), rejected=rejected, constant=3.0) == [0.0] * 8
    empty = compute_weights(
        mode,
        sequence_of_token=np.zeros(0, dtype=int),
        prompt_of_sequence=PROMPTS,
        trajectory_of_sequence=TRAJECTORIES,
        constant=3.0,
    )
    assert empty.shape == (0,)


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_means_weigh_to_one_and_rows_may_be_split_or_reordered(lengths: list[int], seed: int) -> None:
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    order = np.random.default_rng(seed).permutation(len(sequence))
    modes: list[Aggregation] = ["token_mean", "sequence_mean", "trajectory_mean"]
    for mode in modes:
        weights = compute_weights(mode, sequence_of_token=sequence, trajectory_of_sequence=np.arange(len(lengths)) // 2)
        assert weights.sum() == pytest.approx(1.0 if len(sequence) else 0.0)
        mixed = compute_weights(
            mode, sequence_of_token=sequence[order], trajectory_of_sequence=np.arange(len(lengths)) // 2
        )
        assert np.array_equal(mixed, weights[order])
    # One trajectory in several rows weighs like one row that holds all its tokens.
    merged = compute_weights("sequence_mean", sequence_of_token=sequence // 2)
    assert np.allclose(
        compute_weights("trajectory_mean", sequence_of_token=sequence, trajectory_of_sequence=np.arange(8) // 2), merged
    )


@given(length=st.integers(1, 6), num=st.integers(1, 6), constant=st.floats(0.5, 100))
def test_identities(length: int, num: int, constant: float) -> None:
    sequence = np.repeat(np.arange(num), length)
    token = compute_weights("token_mean", sequence_of_token=sequence)
    assert np.allclose(token, compute_weights("sequence_mean", sequence_of_token=sequence))
    total = compute_weights("sequence_sum", sequence_of_token=sequence)
    assert np.allclose(compute_weights("constant", sequence_of_token=sequence, constant=constant), total / constant)


def test_missing_and_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="known: token_mean"):
        compute_weights("mean", sequence_of_token=SEQUENCE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs prompt_of_sequence"):
        compute_weights("prompt_mean", sequence_of_token=SEQUENCE)
    with pytest.raises(ValueError, match="has 2 entries"):
        compute_weights("trajectory_mean", sequence_of_token=SEQUENCE, trajectory_of_sequence=np.array([0, 1]))
    with pytest.raises(ValueError, match="which is None"):
        compute_weights("constant", sequence_of_token=SEQUENCE)
    with pytest.raises(ValueError, match="kept has shape"):
        compute_weights("token_mean", sequence_of_token=SEQUENCE, kept=np.ones(3, dtype=bool))
