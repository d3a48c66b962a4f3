"""The prefix tree: every sequence is found on its path, and every different beginning has one place."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.batching.collate import collate, iterate_micro_batches
from turnwise.batching.layout import (
    MAX_REREAD,
    count_shared,
    lay_end_to_end,
    lay_prefix_tree,
    plan_shared_micro_batches,
)
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask

# Few tokens and a common stem, so that prefixes nest, repeat and part everywhere; ids above 255 and 65535 try the byte
# order. Keys of parts that are no text are negative and need 64 bits.
tokens = st.sampled_from([0, 1, 300, 70_000])
sequences = st.lists(st.lists(tokens, min_size=1, max_size=8), min_size=1, max_size=12)
keys = st.sampled_from([0, 1, 70_000, -1, -(1 << 32), -(1 << 62) - 1])
key_sequences = st.lists(st.lists(keys, min_size=1, max_size=8), min_size=1, max_size=12)


def to_arrays(rows: list[list[int]]) -> list[np.ndarray]:
    return [np.array(row, np.int64) for row in rows]


def make_sample(ids: list[int], trained: list[int], number: int = 0) -> Sample:
    mask = np.isin(np.arange(len(ids)), trained)
    return Sample(
        token_ids=to_ids(ids),
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(np.where(mask, -0.1 * np.arange(len(ids)), 0.0)),
        advantages=to_floats(np.where(mask, number + 1.0, 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=number), task_id="t"),
    )


def test_the_worked_example() -> None:
    layout = lay_prefix_tree(to_arrays([[1, 2, 3, 4], [1, 2, 3, 5], [1, 6]]))
    assert layout.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert layout.positions.tolist() == [0, 1, 2, 3, 3, 1]
    assert layout.lengths == [4, 1, 1]
    assert layout.num_seen == [4, 4, 2]
    assert layout.seen is not None
    assert layout.seen.tolist() == [0, 1, 2, 3, 0, 1, 2, 4, 0, 5]
    assert [path.tolist() for path in layout.paths] == [[0, 1, 2, 3], [0, 1, 2, 4], [0, 5]]


@settings(max_examples=50)
@given(sequences | key_sequences)
def test_every_sequence_is_found_on_its_path_and_every_beginning_stands_once(rows: list[list[int]]) -> None:
    layout = lay_prefix_tree(to_arrays(rows))
    for row, path in zip(rows, layout.paths, strict=True):
        assert layout.token_ids[path].tolist() == row
        assert layout.positions[path].tolist() == list(range(len(row)))
    nodes = {tuple(row[: end + 1]) for row in rows for end in range(len(row))}
    assert len(layout.token_ids) == sum(layout.lengths) == len(nodes)


@settings(max_examples=50)
@given(sequences)
def test_a_token_sees_its_own_beginning_and_nothing_else(rows: list[list[int]]) -> None:
    layout = lay_prefix_tree(to_arrays(rows))
    seen = layout.token_ids if layout.seen is None else layout.seen
    beginnings: dict[int, list[int]] = {}
    for row, path in zip(rows, layout.paths, strict=True):
        beginnings |= {int(place): row[: depth + 1] for depth, place in enumerate(path)}
    place, start = 0, 0
    for length, num_seen in zip(layout.lengths, layout.num_seen, strict=True):
        visible = np.arange(place, place + length) if layout.seen is None else seen[start : start + num_seen]
        for offset in range(length):
            sees = visible[: num_seen - length + offset + 1]
            assert sees[-1] == place
            assert layout.token_ids[sees].tolist() == beginnings[place]
            place += 1
        start += num_seen


@settings(max_examples=50)
@given(sequences, st.integers(1, 30))
def test_the_shared_plan_holds_every_sequence_once_within_both_limits(rows: list[list[int]], limit: int) -> None:
    arrays = to_arrays(rows)
    plan = plan_shared_micro_batches(arrays, limit)
    assert sorted(i for part in plan for i in part) == list(range(len(rows)))
    for part in plan:
        layout = lay_prefix_tree([arrays[i] for i in part])
        assert len(part) == 1 or (len(layout.token_ids) <= limit and sum(layout.num_seen) <= MAX_REREAD * limit)


def test_a_plan_keeps_those_together_who_share() -> None:
    # Two prompts of 6 tokens, four continuations of 1 each, given alternately. 10 places hold a prompt with all of its
    # four: 6 + 4.
    rows = [[prompt] * 6 + [10 + member] for member in range(4) for prompt in (1, 2)]
    plan = plan_shared_micro_batches(to_arrays(rows), 10)
    assert [sorted(part) for part in plan] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    # Reading is limited too: 40 continuations of a prompt of 99 fit in 200 places (99 + 40), but read 40 x 100 > 4 x
    # 200.
    many = to_arrays([[7] * 99 + [10 + member] for member in range(40)])
    assert [len(part) for part in plan_shared_micro_batches(many, 200)] == [8, 8, 8, 8, 8]


def test_nothing_shared_is_laid_out_as_it_always_was() -> None:
    rows = to_arrays([[1, 2], [3, 4, 5]])
    tree, plain = lay_prefix_tree(rows), lay_end_to_end(rows)
    assert tree.seen is None
    assert plain.seen is None
    assert tree.token_ids.tolist() == plain.token_ids.tolist()
    assert tree.lengths == plain.lengths == tree.num_seen == [2, 3]
    # Without an order to gain from, the plain layout keeps what is equal apart.
    assert lay_end_to_end(to_arrays([[1, 2], [1, 2]])).lengths == [2, 2]
    assert lay_prefix_tree(to_arrays([[1, 2], [1, 2]])).lengths == [2]


@pytest.mark.parametrize(
    ("one", "other", "shared"), [([1, 2], [1, 2, 3], 2), ([], [1], 0), ([4], [5], 0), ([1, 2, 3], [1, 9, 3], 1)]
)
def test_count_shared(one: list[int], other: list[int], shared: int) -> None:
    assert count_shared(np.array(one), np.array(other)) == shared


def test_collate_gives_one_entry_per_trained_token_of_each_sample_on_shared_rows() -> None:
    # Both sampled 8 after [5, 6, 7]; the first then sampled 9, the second 4. Given in the order that is not the tree's.
    first, second = make_sample([5, 6, 7, 8, 9], [3, 4], 0), make_sample([5, 6, 7, 8, 4], [3, 4], 1)
    batch = collate(
        [first, second], columns={"weights": [np.array([1.0, 2.0]), np.array([3.0, 4.0])]}, shared_prefix=True
    )
    assert batch.token_ids.tolist() == [5, 6, 7, 8, 4, 9]
    assert batch.ends.tolist() == [5, 4]
    # Token 7 (place 2) predicts 8 for both; 8 (place 3) predicts 9 and 4.
    assert batch.predict_at.tolist() == [2, 3]
    assert batch.row.tolist() == [0, 1, 0, 1]
    assert batch.targets.tolist() == [8, 9, 8, 4]
    assert batch.sequence.tolist() == [0, 0, 1, 1]
    assert batch.advantages.tolist() == [1.0, 1.0, 2.0, 2.0]
    assert batch.columns["weights"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert batch.behavior_logprobs.tolist() == pytest.approx([-0.3, -0.4, -0.3, -0.4])


@settings(max_examples=30)
@given(sequences, st.integers(1, 20), st.randoms(use_true_random=False))
def test_both_layouts_say_the_same_of_every_trained_token(rows: list[list[int]], limit: int, random) -> None:  # type: ignore[no-untyped-def]
    samples = [
        make_sample(row, [at for at in range(1, len(row)) if random.random() < 0.5], n) for n, row in enumerate(rows)
    ]
    columns = {"number": [np.full(int(s.loss_mask.sum()), s.origin.trajectory.member) for s in samples]}
    sums = {}
    for shared in (False, True):
        entries = []
        for indices, batch in iterate_micro_batches(
            samples, columns=columns, micro_batch_tokens=limit, shared_prefix=shared
        ):
            before = batch.token_ids[batch.predict_at[batch.row]], batch.positions[batch.predict_at[batch.row]]
            fields = (*before, batch.targets, batch.behavior_logprobs, batch.advantages, batch.columns["number"])
            sample_indices = torch.tensor(indices)[batch.sequence] if len(batch.sequence) else batch.sequence
            assert torch.equal(sample_indices, batch.columns["number"])
            entries += list(zip(*(field.tolist() for field in fields), strict=True))
        sums[shared] = sorted(entries)
    assert sums[True] == sums[False]
