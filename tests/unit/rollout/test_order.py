"""Which member starts next, and which members of an over-drawn group are kept; all orders worked out by hand."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.types import Invalid, Reward, Scored
from turnwise.rollout.order import choose_members, start_order


@dataclass(frozen=True)
class Place:
    draw: int
    member: int


@dataclass(frozen=True)
class Ended:
    member: int
    reward: Reward


def places(*pairs: tuple[int, int]) -> list[Place]:
    return [Place(draw, member) for draw, member in pairs]


def ended(letters: str) -> list[Ended]:
    """Members 0, 1, ... in the order of finishing: `s` has a scored reward, `f` failed."""
    invalid = Invalid(reason="the tool crashed", retryable=False)
    return [Ended(i, Scored(total=1.0) if letter == "s" else invalid) for i, letter in enumerate(letters)]


def members(chosen: list[Ended]) -> list[int]:
    return [member.member for member in chosen]


def test_first_members_come_first_in_draw_order() -> None:
    waiting = places((4, 1), (4, 0), (3, 2), (3, 0), (5, 0))
    assert start_order(waiting, {})[:3] == places((3, 0), (4, 0), (5, 0))
    # What is known about a group does not matter to its first member.
    assert start_order(waiting, {5: 900.0, 3: 1.0, 4: 50.0})[:3] == places((3, 0), (4, 0), (5, 0))


def test_groups_that_need_most_come_first_and_unknown_ones_before_all() -> None:
    waiting = places((1, 1), (1, 2), (2, 2), (2, 1), (3, 1), (4, 1), (0, 3))
    needs = {1: 120.0, 2: 700.0, 4: 700.0}
    # 0 and 3 are unknown, 2 and 4 need 700 (the lower draw first), 1 needs 120.
    assert start_order(waiting, needs) == places((0, 3), (3, 1), (2, 1), (2, 2), (4, 1), (1, 1), (1, 2))


@given(
    st.sets(st.builds(Place, st.integers(0, 5), st.integers(0, 5))),
    st.dictionaries(st.integers(0, 5), st.floats(0, 10)),
    st.randoms(use_true_random=False),
)
def test_the_order_holds_everybody_once_and_does_not_depend_on_how_they_came(waiting, needs, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = sorted(waiting, key=lambda place: (place.draw, place.member))
    random.shuffle(shuffled)
    order = start_order(shuffled, needs)
    assert order == start_order(waiting, needs)
    assert len(order) == len(waiting)
    assert set(order) == waiting
    tail = [needs.get(place.draw, float("inf")) for place in order if place.member > 0]
    assert tail == sorted(tail, reverse=True)


@pytest.mark.parametrize(
    ("letters", "kept", "overdrawn"),
    [
        ("ssssssssss", [0, 1, 2, 3, 4, 5, 6, 7], [8, 9]),
        ("sfsssssfss", [0, 2, 3, 4, 5, 6, 8, 9], [1, 7]),  # both failures give way
        ("fsssssfffs", [0, 1, 2, 3, 4, 5, 6, 9], [7, 8]),  # 6 are scored: the first two failures fill up
        ("ffffffffff", [0, 1, 2, 3, 4, 5, 6, 7], [8, 9]),
        ("ssf", [0, 1, 2], []),  # fewer than the group takes: all are kept
        ("", [], []),
    ],
)
def test_the_first_scored_members_are_kept(letters: str, kept: list[int], overdrawn: list[int]) -> None:
    chosen, others = choose_members(ended(letters), 8)
    assert members(chosen) == kept
    assert members(others) == overdrawn


def test_a_group_without_members_is_refused() -> None:
    with pytest.raises(ValueError, match="group_size=0"):
        choose_members(ended("s"), 0)


@given(st.text("sf", max_size=12), st.integers(1, 8))
def test_every_member_is_kept_or_overdrawn_and_no_scored_one_gives_way_to_a_failure(letters: str, size: int) -> None:
    finished = ended(letters)
    kept, overdrawn = choose_members(finished, size)
    assert sorted(members(kept) + members(overdrawn)) == list(range(len(finished)))
    assert members(kept) == sorted(members(kept))
    assert members(overdrawn) == sorted(members(overdrawn))
    assert len(kept) == min(size, len(finished))
    if any(isinstance(member.reward, Scored) for member in overdrawn):
        assert all(isinstance(member.reward, Scored) for member in kept)
