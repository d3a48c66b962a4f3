"""Where requests go: what shares tokens stays together, the rest is spread."""

from turnwise.core.types import Session
from turnwise.engines.workers.router import Router


def test_groups_stay_together_and_are_spread_evenly() -> None:
    router = Router(num_workers=2, max_open=8)
    places = [[router.start(Session(str(group), str(member))) for member in range(3)] for group in range(4)]
    assert places == [[0] * 3, [1] * 3, [0] * 3, [1] * 3]


def test_turns_stay_where_their_conversation_is_kept() -> None:
    router = Router(num_workers=3, max_open=1)
    first = router.start(Session("a", "0"))
    router.end(first)
    others = [router.start(Session(name, "0")) for name in "bcd"]
    assert sorted(others[:2]) == [1, 2]
    # Its worker may be full by now: its history is there.
    assert router.start(Session("a", "0")) == first


def test_a_branch_goes_where_the_turns_before_it_are_kept() -> None:
    router = Router(num_workers=2, max_open=2)
    assert [router.start(Session("task", f"{member}/0")) for member in range(3)] == [0, 0, 1]
    router.end(0)
    # Of both workers with room, that of its own conversation, not that of the group's first one.
    assert router.start(Session("task", "2/0.1")) == 1
    assert router.start(Session("task", "3/0")) == 0


def test_a_full_worker_leaves_newcomers_of_a_group_to_one_with_room() -> None:
    router = Router(num_workers=2, max_open=2)
    assert [router.start(Session("task", str(member))) for member in range(5)] == [
        0,
        0,
        1,
        1,
        0,
    ]  # the last finds both full
    router.end(0)
    router.end(0)
    assert router.start(Session("task", "9")) == 0


def test_what_is_released_counts_no_more() -> None:
    router = Router(num_workers=2, max_open=8)
    for group in "ab":
        router.end(router.start(Session(group, "0")))
    assert router.release(Session("a", "0")) == 0
    assert router.release(Session("a", "0")) is None
    assert router.release(Session("unknown", "0")) is None
    assert router.start(Session("c", "0")) == 0  # b is kept by 1, nothing by 0
    assert router.start(Session("a", "1")) == 1  # its group was forgotten; both keep one, and 0 has an open request


def test_conversations_without_a_cache_go_anywhere() -> None:
    router = Router(num_workers=2, max_open=8)
    busy = router.start(Session("a", "0"))
    router.forget()
    assert router.start(Session("a", "1")) == busy  # open requests go on where they are
    router.end(busy)
    router.end(busy)
    router.forget()
    assert [router.start(Session("x", "0")), router.start(Session("a", "0"))] == [0, 1]


def test_a_worker_that_is_out_gets_nothing_until_it_enters_again() -> None:
    router = Router(num_workers=2, max_open=8)
    assert [router.start(Session(group, "0")) for group in "ab"] == [0, 1]
    router.leave(0)
    # What it kept moves, and moves only once.
    assert [router.start(Session(group, "0")) for group in "acd"] == [1, 1, 1]
    router.enter(0)
    assert router.start(Session("a", "0")) == 1
    assert router.start(Session("e", "0")) == 0
