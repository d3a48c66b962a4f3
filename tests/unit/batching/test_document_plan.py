"""The plan of continual pre-training: every token once per pass, steps within their bound."""

from collections import Counter
from itertools import islice
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.batching.documents import PlannedStep, plan_steps

Packing = Literal["separate", "joined"]


def take(lengths: list[int], count: int, packing: Packing, *, batch: int, longest: int) -> list[PlannedStep]:
    steps = plan_steps(lengths, batch_tokens=batch, max_tokens=longest, packing=packing, seed=0)
    return list(islice(steps, count))


def list_trained(step: PlannedStep) -> list[tuple[int, int]]:
    """(document, place) of every token that trains: all of a sequence but its first."""
    return [
        each
        for sequence in step.sequences
        for each in [(piece.document, at) for piece in sequence for at in range(piece.start, piece.end)][1:]
    ]


def test_a_long_document_goes_on_with_its_last_token_as_context() -> None:
    # 5 tokens in sequences of 4: 0 1 2 3, then 3 4; 3 + 1 = 4 tokens train, of at most 4.
    [step] = take([5], 1, "separate", batch=4, longest=4)
    assert [[(p.start, p.end) for p in sequence] for sequence in step.sequences] == [[(0, 4)], [(3, 5)]]
    assert step.num_trained == 4


def test_joined_documents_are_cut_across_their_ends() -> None:
    # One document of 3 tokens, pass after pass, in sequences of 4: 0 1 2 | 0 / 0 1 2 | 0 / ...
    first, second = take([3], 2, "joined", batch=3, longest=4)
    assert [(p.start, p.end) for p in first.sequences[0]] == [(0, 3), (0, 1)]
    assert [(p.start, p.end) for p in second.sequences[0]] == [(0, 1), (1, 3), (0, 1)]
    assert (first.epoch, second.epoch, first.num_trained, second.num_trained) == (0, 1, 3, 3)


@given(
    lengths=st.lists(st.integers(2, 30), min_size=1, max_size=6),
    longest=st.integers(2, 12),
    more=st.integers(0, 20),
    packing=st.sampled_from(["separate", "joined"]),
)
def test_every_token_trains_once_per_pass(lengths: list[int], longest: int, more: int, packing: Packing) -> None:
    batch = longest - 1 + more
    steps = take(lengths, 12, packing, batch=batch, longest=longest)
    counts: Counter[tuple[int, int]] = Counter()
    for step in steps:
        trained = list_trained(step)
        assert step.num_trained == len(trained) <= batch
        assert all(sum(map(len, sequence)) <= longest for sequence in step.sequences)
        counts.update(trained)
    places = {(d, at) for d, length in enumerate(lengths) for at in range(packing == "separate", length)}
    first = steps[0].sequences[0][0]
    if packing == "joined":
        places -= {(first.document, first.start)}
    assert set(counts) <= places | {(first.document, first.start)}
    seen = [counts[place] for place in places]
    assert max(seen) - min(seen) <= 1


def test_passes_have_different_orders_and_a_seed_gives_one() -> None:
    steps = take([4] * 20, 40, "separate", batch=3, longest=4)
    orders = [[step.sequences[0][0].document for step in steps[at : at + 20]] for at in (0, 20)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(20))
    assert steps == take([4] * 20, 40, "separate", batch=3, longest=4)


@pytest.mark.parametrize(("lengths", "batch", "longest"), [([], 4, 4), ([1], 4, 4), ([5], 2, 4), ([5], 4, 1)])
def test_what_cannot_be_planned_is_refused(lengths: list[int], batch: int, longest: int) -> None:
    with pytest.raises(ValueError, match="nothing to plan"):
        take(lengths, 1, "separate", batch=batch, longest=longest)
