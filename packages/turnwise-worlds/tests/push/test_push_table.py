"""What moves on a table, its ways, and the words and bins of actions."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import DataError, ToolFailure
from turnwise_worlds.push.bins import Bins, read_chunk, write_chunk
from turnwise_worlds.push.body import CellBody, round_away
from turnwise_worlds.push.layouts import draw_table
from turnwise_worlds.push.routes import STEPS, find_route, to_moves
from turnwise_worlds.push.table import Table

NINE = Bins(count=9, reach=4)
TABLE = Table(side=6, hand=(0, 2), block=(2, 2), goal=(5, 2))


def test_a_hand_pushes_a_block_and_stops_where_neither_can_move_on() -> None:
    # From (0, 2), four cells to the right: the block at 2 is met after one and pushed by the other three, to 5.
    pushed = TABLE.move(4, 0)
    assert (pushed.hand, pushed.block, pushed.is_solved) == ((4, 2), (5, 2), True)
    assert pushed.move(3, 0) == pushed  # the block is at the table's edge
    walled = replace(TABLE, wall=((4, 1), (4, 2), (4, 3)))
    stopped = walled.move(4, 1)  # the block stops at 3, the hand at 2; what is left along x is lost, y is not
    assert (stopped.hand, stopped.block) == ((2, 3), (3, 2))
    assert walled.move(0, -4).hand == (0, 0)
    # Along x first: right and up from (0, 2) pushes the block, up and then right does not.
    assert TABLE.move(2, 1).block == (3, 2)
    assert TABLE.move(0, 1).move(2, 0).block == (2, 2)


def test_a_table_is_solved_by_its_block_or_by_the_hand_where_there_is_none() -> None:
    assert not replace(TABLE, hand=(5, 2)).is_solved
    assert replace(TABLE, block=None, hand=(5, 2)).is_solved
    assert TABLE.distance == 3
    assert replace(TABLE, block=None).distance == 5


@given(seed=st.integers(0, 2**40), kind=st.sampled_from(("reach", "push", "around")))
@settings(max_examples=60, deadline=None)
def test_nothing_leaves_the_table_or_enters_what_is_there(seed: int, kind: str) -> None:
    random = Random(seed)
    table = draw_table(kind, 6, random)  # type: ignore[arg-type]
    for _ in range(12):
        table = table.move(random.randint(-4, 4), random.randint(-4, 4))
        assert table.is_free(table.hand)
        if table.block is not None:
            assert table.is_free(table.block)
            assert table.block != table.hand


def search_widely(table: Table) -> int | None:
    """The fewest steps to solve a table, by trying all of each length."""
    seen, edge, length = {table}, [table], 0
    while edge:
        if any(each.is_solved for each in edge):
            return length
        edge = [after for at in edge for step in STEPS if (after := at.step(*step)) not in seen and not seen.add(after)]  # type: ignore[func-returns-value]
        length += 1
    return None


@pytest.mark.parametrize("kind", ["reach", "push", "around"])
def test_a_route_is_as_short_as_a_wide_search_finds_and_its_moves_solve_the_table(kind: str) -> None:
    for seed in range(6):
        table = draw_table(kind, 5, Random(seed))  # type: ignore[arg-type]
        route = find_route(table)
        assert route is not None
        assert len(route) == search_widely(table)
        moves = to_moves(route, 2)
        assert sum(abs(right) + abs(up) for right, up in moves) == len(route)
        assert all(max(abs(right), abs(up)) <= 2 for right, up in moves)
        for right, up in moves:
            table = table.move(right, up)
        assert table.is_solved


def test_a_block_in_a_corner_has_no_route_and_a_wall_of_around_makes_it_longer() -> None:
    assert find_route(replace(TABLE, block=(0, 0), hand=(3, 3))) is None
    for seed in range(8):
        table = draw_table("around", 6, Random(seed))
        assert len(table.wall) == 3
        assert len(find_route(table) or ()) > len(find_route(replace(table, wall=())) or ())


@given(count=st.integers(9, 256), reach=st.integers(1, 16), data=st.data())
@settings(deadline=None)
def test_an_action_comes_back_from_its_bin_within_half_a_bin(count: int, reach: int, data: st.DataObject) -> None:
    bins = Bins(count=count, reach=reach)
    assert len(bins.indices) == count
    index = data.draw(st.sampled_from(bins.indices))
    assert bins.to_index(bins.to_cells(index)) == index
    move = data.draw(st.floats(-reach, reach))
    assert abs(bins.to_cells(bins.to_index(move)) - Fraction(move)) <= Fraction(reach, count - 1)
    assert [bins.to_cells(bins.indices[end]) for end in (0, -1)] == [-reach, reach]


def test_nine_bins_are_whole_cells_and_256_have_none_at_rest() -> None:
    assert [NINE.to_cells(index) for index in NINE.indices] == list(range(-4, 5))
    many = Bins(count=256, reach=4)
    assert (many.indices[0], many.indices[-1]) == (-128, 127)
    # The two middle bins are 4/255 of a cell from rest: (2 * 0 + 1) * 4 / 255.
    assert (many.to_cells(0), many.to_cells(-1)) == (Fraction(4, 255), Fraction(-4, 255))
    assert {round_away(many.to_cells(index)) for index in many.indices} == set(range(-4, 5))


@pytest.mark.parametrize("move", [float("nan"), float("inf"), -float("inf"), 4.001, -5.0])
def test_a_move_without_a_bin_is_refused(move: float) -> None:
    with pytest.raises(DataError, match="has no bin; use -4 to 4"):
        NINE.to_index(move)


def test_half_a_cell_rounds_away_from_zero() -> None:
    half = Fraction(1, 2)
    assert [round_away(move) for move in (half, -half, half * 3, Fraction(49, 100), Fraction(0))] == [1, -1, 2, 0, 0]
    assert CellBody(TABLE).act((half, -half)).table.hand == (1, 1)


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=8), st.booleans())
def test_a_chunk_is_read_as_it_was_written(actions: list[tuple[int, int]], joined: bool) -> None:
    text = write_chunk(actions)
    assert read_chunk(text.replace(" ", "") if joined else text, NINE, 8) == tuple(actions)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no action"),
        ("<x+1>", "a bin of x and then one of y"),
        ("<y+1> <x+1>", "a bin of x and then one of y"),
        ("<x+1> <y+1> <x+1>", "a bin of x and then one of y"),
        ("<x+5> <y+0>", r"<x\+5> is no bin; use -4 to \+4"),
        ("<x-0> <y+0>", "<x-0> is no bin"),
        ("<x+01> <y+0>", r"<x\+01> is no bin"),
        ("<x+nan> <y+0>", "'<x.nan>' is no action"),
        ("<x+1.5> <y+0>", "is no action"),
        ("<x+1> <y+1> done", "'done' is no action"),
        ("<x+1> <y+1> " * 3, "3 actions; a reply has at most 2"),
        ("<x+9999999999> <y+0>", "is no action"),
        ("<x+\u0663> <y+0>", "is no action"),
    ],
)
def test_a_malformed_chunk_is_named(text: str, message: str) -> None:
    with pytest.raises(ToolFailure, match=message):
        read_chunk(text, NINE, 2)


def test_every_pair_of_bins_has_its_own_words() -> None:
    words = {write_chunk([pair]) for pair in product(NINE.indices, NINE.indices)}
    assert len(words) == 81
    assert "<x+0> <y-4>" in words
