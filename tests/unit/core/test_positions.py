"""Positions of tokens and pictures, counted by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.keys import Span
from turnwise.core.positions import number_positions


def test_without_grids_tokens_are_counted() -> None:
    assert number_positions(5, [Span(start=1, length=2, digest="a")]).tolist() == [0, 1, 2, 3, 4]


def test_a_picture_is_numbered_by_rows_and_columns_and_the_text_goes_on_after_the_longer_side() -> None:
    span = Span(start=2, length=6, digest="a", grid=(1, 2, 3))
    # Two tokens; a picture of 2 rows and 3 columns at position 2; then the text from 2 + 3 = 5.
    assert number_positions(10, [span]).tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4))
def test_text_has_one_number_on_all_axes_and_goes_on_after_the_longer_sides(parts: list[tuple[int, int, int]]) -> None:
    spans, at = [], 0
    for text, rows, columns in parts:
        spans.append(Span(start=at + text, length=rows * columns, digest="a", grid=(1, rows, columns)))
        at = spans[-1].start + spans[-1].length
    numbers = number_positions(at + 2, spans)
    is_place = np.zeros(at + 2, bool)
    for span in spans:
        is_place[span.start : span.start + span.length] = True
    assert (numbers[:, ~is_place] == numbers[0, ~is_place]).all()
    following = sum(text + max(rows, columns) for text, rows, columns in parts)
    assert numbers[0, -2:].tolist() == [following, following + 1]
    # What follows changes nothing before it.
    assert np.array_equal(number_positions(at + 1, spans), numbers[:, :-1])


def test_two_pictures_follow_each_other() -> None:
    first = Span(start=0, length=2, digest="a", grid=(1, 2, 1))
    second = Span(start=3, length=1, digest="b", grid=(1, 1, 1))
    # Rows 0 and 1, then the text at 0 + 2, a picture at 3, and the text at 3 + 1.
    assert number_positions(5, [first, second])[1].tolist() == [0, 1, 2, 3, 4]
    assert number_positions(5, [first, second])[2].tolist() == [0, 0, 2, 3, 4]
