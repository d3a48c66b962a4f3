"""Recorded experts from turns to micro-batches: each token has its own, and only equal ones are shared."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.batching.collate import collate, iterate_micro_batches
from turnwise.batching.samples import forget_experts, to_samples
from turnwise.core.sampled import keep_version_experts
from turnwise.core.types import (
    UNRECORDED as NONE,
)
from turnwise.core.types import (
    Completion,
    FinishReason,
    Origin,
    Sample,
    Scored,
    StopReason,
    Trajectory,
    TrajectoryId,
    Turn,
    text_message,
    to_experts,
    to_floats,
    to_ids,
    to_mask,
)


def turn(parent: int | None, context: list[int], sampled: list[int], experts: list[int] | None) -> Turn:
    """One layer that takes one expert, to be read as a list."""
    completion = Completion(
        token_ids=to_ids(sampled),
        logprobs=to_floats([-1.0] * len(sampled)),
        finish_reason=FinishReason.STOP,
        version_first=0,
        version_last=0,
        experts=None if experts is None else to_experts(np.array(experts)[:, None, None]),
    )
    return Turn(parent=parent, context_ids=to_ids(context), completion=completion, message=text_message("user", ""))


def trajectory(*turns: Turn) -> Trajectory:
    return Trajectory(
        id=TrajectoryId(draw=0, member=0), task_id="t", turns=turns, stop=StopReason.DONE, reward=Scored(total=1.0)
    )


def sample(ids: list[int], experts: list[int] | None, member: int = 0) -> Sample:
    """The last token trains."""
    return Sample(
        token_ids=to_ids(ids),
        loss_mask=to_mask([False] * (len(ids) - 1) + [True]),
        behavior_logprobs=to_floats([0.0] * len(ids)),
        advantages=to_floats([0.0] * len(ids)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=member), task_id="t"),
        experts=None if experts is None else to_experts(np.array(experts)[:, None, None]),
    )


def list_experts(array: np.ndarray | None) -> list[int]:
    assert array is not None
    return [int(each) for each in array.reshape(-1)]


def test_turns_follow_each_other_without_a_gap() -> None:
    """P P C C | O C: the root computed 3 tokens, its child the root's last one and O; the last token never ran."""
    root = turn(None, [1, 2], [3, 4], [5, 6, 7])
    [whole] = to_samples(trajectory(root, turn(0, [8], [9], [1, 2])))
    assert list_experts(whole.experts) == [5, 6, 7, 1, 2]


def test_experts_of_one_version_are_those_that_its_next_tokens_were_drawn_with() -> None:
    """P P C C | O C C with versions 0 1 | 1 2: rows 5 and 6 of the prompt led to the token of version 0, row 7 to the
    first of version 1; in the second turn 1 and 2 led to its token of version 1, and 3 to that of version 2."""
    turns = turn(None, [1, 2], [3, 4], [5, 6, 7]), turn(0, [8], [9, 10], [1, 2, 3])
    versions = [[0, 1], [1, 2]]
    mixed = trajectory(
        *(
            replace(each, completion=replace(each.completion, versions=to_ids(of_turn), version_last=of_turn[1]))
            for each, of_turn in zip(turns, versions, strict=True)
        )
    )
    kept = [list_experts(to_samples(keep_version_experts(mixed, version))[0].experts) for version in (0, 1, 2)]
    assert kept == [[5, 6, NONE, NONE, NONE, NONE], [NONE, NONE, 7, 1, 2, NONE], [NONE, NONE, NONE, NONE, NONE, 3]]


def test_branches_have_the_experts_of_their_own_path() -> None:
    """The root's last token was computed for each branch, here by different experts."""
    root = turn(None, [1, 2], [3, 4], [5, 6, 7])
    one, other = to_samples(trajectory(root, turn(0, [8], [9], [1, 2]), turn(0, [8], [10], [0, 2])))
    assert list_experts(one.experts) == [5, 6, 7, 1, 2]
    assert list_experts(other.experts) == [5, 6, 7, 0, 2]


def test_a_path_with_a_turn_that_recorded_nothing_has_none() -> None:
    root = turn(None, [1, 2], [3, 4], [5, 6, 7])
    [whole] = to_samples(trajectory(root, turn(0, [8], [9], None)))
    assert whole.experts is None


def test_a_count_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="4 tokens and 4 rows of experts"):
        sample([1, 2, 3, 4], [0, 0, 0, 0])
    deeper = replace(sample([1, 2], [0]), experts=to_experts(np.zeros((1, 2, 1))))
    with pytest.raises(ValueError, match="different models"):
        collate([sample([1, 2], [0]), deeper])


def test_end_to_end_the_last_token_of_a_sample_has_none() -> None:
    batch = collate([sample([1, 2, 3], [4, 5]), sample([1, 2], None), sample([1, 2], [6])])
    assert batch.experts is not None
    assert list_experts(batch.experts.numpy()) == [4, 5, NONE, NONE, NONE, 6, NONE]


def test_a_tree_shares_what_took_the_same_experts() -> None:
    """[1 2 3 4] and [1 2 3 5] by experts [7 8 9] and [7 8 8]: the third token is the same and was computed otherwise,
    so each sample keeps its own. Places: 1 2 | 3 4 | 3 5."""
    batch = collate([sample([1, 2, 3, 4], [7, 8, 9]), sample([1, 2, 3, 5], [7, 8, 8], 1)], shared_prefix=True)
    assert batch.experts is not None
    assert batch.token_ids.tolist() == [1, 2, 3, 4, 3, 5]
    assert batch.positions.tolist() == [0, 1, 2, 3, 2, 3]
    assert list_experts(batch.experts.numpy()) == [7, 8, 9, NONE, 8, NONE]
    dense = collate(
        forget_experts([sample([1, 2, 3, 4], [7, 8, 9]), sample([1, 2, 3, 5], [7, 8, 8])]), shared_prefix=True
    )
    assert dense.experts is None
    assert dense.token_ids.tolist() == [1, 2, 3, 4, 5]


rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=6)


@given(st.lists(rows, min_size=1, max_size=5), st.integers(4, 20))
def test_every_token_of_every_sample_finds_its_own_experts(pairs: list[list[tuple[int, int]]], limit: int) -> None:
    """Walk each sample's path through the tree: token ids and experts along it are the sample's."""
    samples = [
        sample([token for token, _ in each], [expert for _, expert in each[:-1]], member)
        for member, each in enumerate(pairs)
    ]
    seen: list[int] = []
    for indices, batch in iterate_micro_batches(samples, micro_batch_tokens=limit, shared_prefix=True):
        seen += indices
        assert batch.experts is not None
        place = {}
        paths = batch.seen.split(batch.num_seen) if batch.seen is not None else list_runs(batch.lengths)
        for path in paths:
            for depth, at in enumerate(path.tolist()):
                place[at] = [int(i) for i in path[: depth + 1]]
        for index, end in zip(indices, batch.ends.tolist(), strict=True):
            path = place[end]
            assert batch.token_ids[path].tolist() == samples[index].token_ids.tolist()
            assert list_experts(batch.experts[path].numpy()) == [*list_experts(samples[index].experts), NONE]
    assert sorted(seen) == list(range(len(samples)))


def list_runs(lengths: list[int]) -> list[np.ndarray]:
    return np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
