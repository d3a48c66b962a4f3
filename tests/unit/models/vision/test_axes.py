"""Positions with three axes, against hand arithmetic and Qwen's own function."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conversations import write
from hypothesis import given
from hypothesis import strategies as st
from tiny_seeing import build_seeing, draw

from turnwise.core.keys import Span
from turnwise.core.positions import number_positions

GRIDS = st.tuples(st.just(1), st.integers(1, 5), st.integers(1, 5))


def span_at(start: int, grid: tuple[int, int, int]) -> Span:
    return Span(start=start, length=int(np.prod(grid)), digest="a", grid=grid)


def test_a_picture_of_two_rows_and_three_columns() -> None:
    # Text at 0 and 1; the picture begins at 2; the next text is at 2 + max(2, 3) = 5.
    expected = [[0, 1, 2, 2, 2, 2, 2, 2, 5, 6], [0, 1, 2, 2, 2, 3, 3, 3, 5, 6], [0, 1, 2, 3, 4, 2, 3, 4, 5, 6]]
    assert number_positions(10, [span_at(2, (1, 2, 3))]).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 3), GRIDS), max_size=4), st.integers(0, 3))
def test_text_and_pictures_follow_each_other(parts: list[tuple[int, tuple[int, int, int]]], rest: int) -> None:
    spans, at = [], 0
    for text, grid in parts:
        spans.append(span_at(at + text, grid))
        at += text + spans[-1].length
    positions = np.broadcast_to(number_positions(at + rest, spans), (3, at + rest))
    is_place = np.zeros(at + rest, bool)
    for span in spans:
        is_place[span.start : span.start + span.length] = True
    assert (positions[:, ~is_place] == positions[0, ~is_place]).all()
    expected = sum(text + max(grid[1:]) for text, grid in parts)
    assert number_positions(at + rest + 1, spans).flat[at + rest] == expected + rest
    assert (number_positions(at + rest + 1, spans)[..., :-1] == positions).all()


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_positions_are_those_of_the_models_own_function(kind: str) -> None:
    model, _, eyes = build_seeing(kind)
    conversation = write(eyes, [40, 41], draw(0), [42], draw(1, 90, 30), [43, 44], draw(2, 20, 70), [45])
    ids = torch.tensor([conversation.token_ids])
    grids = torch.cat(
        [eyes.sight.prepare(eyes.pictures.read(span.digest))["image_grid_thw"] for span in conversation.spans]
    )
    kinds = ids.eq(eyes.layout.place_id).int()
    theirs, delta = model.model.get_rope_index(ids, kinds, image_grid_thw=grids)
    assert np.array_equal(theirs[:, 0].numpy(), number_positions(ids.shape[1], conversation.spans))
    following = number_positions(ids.shape[1] + 1, conversation.spans)[:, -1]
    assert following.tolist() == [ids.shape[1] + int(delta)] * 3
