"""The cut of a batch into shares: all of it, once, in as few rounds as it needs, for every number of ranks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks_world import make_samples

from turnwise.batching.collate import collate_nothing, iterate_micro_batches
from turnwise.batching.pack import plan_micro_batches
from turnwise.batching.ranks import ALONE, add_totals, find_largest, find_maxima, join_rows, plan_rounds


@dataclass(frozen=True)
class Pretended:
    """A rank that is told what all ranks together have."""

    index: int
    size: int
    total: Any = None

    def add(self, numbers: Any) -> Any:
        return numbers if self.total is None else self.total

    def agree(self, problem: str | None) -> str | None:
        return problem


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 5), st.integers(1, 120))
def test_every_sample_is_in_one_place_of_as_few_rounds_as_the_limit_allows(
    lengths: list[int], size: int, limit: int
) -> None:
    rounds = plan_rounds(
        lambda tokens: plan_micro_batches(lengths, tokens), lambda at: sum(lengths[i] for i in at), limit, size
    )
    assert sorted(i for round_ in rounds for at in round_ for i in at) == list(range(len(lengths)))
    assert all(len(round_) == size for round_ in rounds)
    assert len(rounds) == -(-len(plan_micro_batches(lengths, limit)) // size)
    assert all(len(at) <= 1 or sum(lengths[i] for i in at) <= limit for round_ in rounds for at in round_)
    if size == 1:
        assert [round_[0] for round_ in rounds] == plan_micro_batches(lengths, limit)


def test_a_small_batch_is_cut_evenly_instead_of_leaving_ranks_empty() -> None:
    # Ten samples of 10 tokens fit one micro-batch of 1,000; four ranks get 3, 3, 3 and 1 of them, two 5 and 5.
    lengths = [10] * 10
    for size, counts in ((4, [3, 3, 3, 1]), (2, [5, 5])):
        (round_,) = plan_rounds(
            lambda tokens: plan_micro_batches(lengths, tokens), lambda at: sum(lengths[i] for i in at), 1000, size
        )
        assert [len(at) for at in round_] == counts


def test_micro_batches_of_like_cost_share_a_round() -> None:
    lengths = [90, 5, 80, 10]
    rounds = plan_rounds(
        lambda tokens: plan_micro_batches(lengths, tokens), lambda at: sum(lengths[i] for i in at), 90, 2
    )
    assert rounds == [[[0], [2]], [[3], [1]]]


@pytest.mark.parametrize("shared_prefix", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_ranks_have_as_many_micro_batches(size: int, shared_prefix: bool) -> None:
    samples = make_samples(1)
    column = {"number": [np.full(int(s.loss_mask.sum()), float(i)) for i, s in enumerate(samples)]}
    shares = [
        list(
            iterate_micro_batches(
                samples,
                columns=column,
                micro_batch_tokens=60,
                shared_prefix=shared_prefix,
                ranks=Pretended(index, size),
            )
        )
        for index in range(size)
    ]
    assert len({len(share) for share in shares}) == 1
    assert sorted(i for share in shares for indices, _ in share for i in indices) == list(range(len(samples)))
    for indices, batch in (part for share in shares for part in share):
        assert batch.columns["number"].tolist() == [
            float(i) for i in indices for _ in range(int(samples[i].loss_mask.sum()))
        ]


def test_an_empty_micro_batch_computes_one_token_and_trains_none() -> None:
    batch = collate_nothing("cpu", {"weights": [np.ones(3)], "in_step": [np.ones(3, bool)]})
    assert len(batch.token_ids) == 1
    assert [len(each) for each in (batch.targets, batch.row, batch.ends, *batch.columns.values())] == [0] * 5


def test_rows_of_all_ranks_come_back_in_order() -> None:
    whole = np.array([0.0, 1.0, 1.5, 2.0])
    rows = join_rows({1: np.array([1.0, 1.5])}, [1, 2, 1], Pretended(0, 2, whole))
    assert [row.tolist() for row in rows] == [[0.0], [1.0, 1.5], [2.0]]
    own = {index: np.array([float(index)], np.float32) for index in range(3)}
    assert [row is own[index] for index, row in enumerate(join_rows(own, [1, 1, 1], ALONE))] == [True] * 3


def test_totals_keep_their_names_and_the_largest_is_that_of_all() -> None:
    assert add_totals({"a": 1.0, "b": 2.0}, Pretended(0, 2, np.array([5.0, 7.0]))) == {"a": 5.0, "b": 7.0}
    assert find_largest(1.0, Pretended(0, 2, np.array([1.0, 4.0]))) == 4.0
    assert find_largest(1.0, ALONE) == 1.0


def test_the_largest_of_each_number_is_known_to_all() -> None:
    # Two ranks with two numbers each, one after the other: (1, -inf) and (4, -3).
    numbers = np.array([1.0, -np.inf, 4.0, -3.0])
    assert find_maxima({"a": 1.0, "b": -np.inf}, Pretended(0, 2, numbers)) == {"a": 4.0, "b": -3.0}
    assert find_maxima({"a": -np.inf}, ALONE) == {"a": -np.inf}
