"""Where pictures stand in a micro-batch, and that two pictures never share a place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.batching.collate import UNTRAINED, collate
from turnwise.core.keys import Span
from turnwise.core.types import Sample, to_floats, to_ids, to_mask


def sample(ids: list[int], *spans: Span) -> Sample:
    """A sample whose last token trains."""
    nothing = to_floats(np.zeros(len(ids)))
    return Sample(
        token_ids=to_ids(ids),
        loss_mask=to_mask([False] * (len(ids) - 1) + [True]),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=UNTRAINED.origin,
        images=spans,
    )


CAT, DOG = (Span(start=1, length=2, digest=name) for name in ("cat", "dog"))


def test_end_to_end_every_picture_has_its_places() -> None:
    batch = collate([sample([5, 9, 9, 6], CAT), sample([5, 9, 9, 7], DOG)])
    assert batch.images is not None
    assert batch.images.digests == ("cat", "dog")
    assert batch.images.places.tolist() == [1, 2, 5, 6]
    assert batch.images.image.tolist() == [0, 0, 1, 1]
    assert batch.images.row.tolist() == [0, 1, 0, 1]


def test_a_shared_picture_is_there_once() -> None:
    batch = collate([sample([5, 9, 9, 6], CAT), sample([5, 9, 9, 7], CAT)], shared_prefix=True)
    assert batch.images is not None
    assert batch.token_ids.tolist() == [5, 9, 9, 6, 7]
    assert batch.images.places.tolist() == [1, 2]


def test_pictures_of_equal_ids_share_nothing() -> None:
    batch = collate([sample([5, 9, 9, 6], CAT), sample([5, 9, 9, 6], DOG)], shared_prefix=True)
    assert batch.images is not None
    assert len(batch.token_ids) == 7  # the first token is shared
    assert sorted(zip(batch.images.image.tolist(), batch.images.row.tolist(), strict=True)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def test_a_later_piece_of_a_picture_has_later_rows() -> None:
    pieces = (Span(start=1, length=2, digest="cat"), Span(start=4, length=2, digest="cat", offset=2))
    batch = collate([sample([5, 9, 9, 6, 9, 9, 7], *pieces)])
    assert batch.images is not None
    assert batch.images.digests == ("cat",)
    assert batch.images.row.tolist() == [0, 1, 2, 3]


def test_positions_have_axes_where_a_picture_has_a_grid() -> None:
    grid = Span(start=1, length=4, digest="cat", grid=(1, 2, 2))
    batch = collate([sample([5, 9, 9, 9, 9, 6], grid), sample([5, 6])])
    # The text after the picture at 1 goes on at 1 + 2; the second sample starts again.
    assert batch.positions.tolist() == [
        [0, 1, 1, 1, 1, 3, 0, 1],
        [0, 1, 1, 2, 2, 3, 0, 1],
        [0, 1, 2, 1, 2, 3, 0, 1],
    ]
    assert collate([sample([5, 6])]).positions.tolist() == [0, 1]


@pytest.mark.parametrize("shared", [False, True])
@given(data=st.data())
def test_every_place_of_every_sample_keeps_its_picture(shared: bool, data: st.DataObject) -> None:
    names = st.sampled_from(["cat", "dog", "owl"])
    samples = []
    for _ in range(data.draw(st.integers(1, 4))):
        ids, spans = [5], []
        for name in data.draw(st.lists(names, max_size=3)):
            spans.append(Span(start=len(ids), length=2, digest=name))
            ids += [9, 9]
        samples.append(sample([*ids, data.draw(st.integers(6, 8))], *spans))
    batch = collate(samples, shared_prefix=shared)
    if batch.images is None:
        assert not any(each.images for each in samples)
        return
    shown = {
        int(place): (batch.images.digests[image], int(row))
        for place, image, row in zip(batch.images.places, batch.images.image, batch.images.row, strict=True)
    }
    # Read every sample back along the tokens that its last one attends to.
    ends = batch.ends.tolist()
    if not shared:
        starts = [end + 1 - len(each.token_ids) for end, each in zip(ends, samples, strict=True)]
        for start, each in zip(starts, samples, strict=True):
            for span in each.images:
                for k in range(span.length):
                    assert shown[start + span.start + k] == (span.digest, k)
        return
    seen = np.arange(len(batch.token_ids)) if batch.seen is None else batch.seen.numpy()
    paths = {int(path[-1]): path for path in np.split(seen, np.cumsum(batch.num_seen)[:-1])}
    for end, each in zip(ends, samples, strict=True):
        path = paths[end]
        for span in each.images:
            for k in range(span.length):
                assert shown[int(path[span.start + k])] == (span.digest, k)
