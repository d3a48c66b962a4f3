"""Where requests go: what shares tokens stays together, the rest is spread."""

from turnwise.engines.workers.router import Router


def test_groups_stay_together_and_are_spread_evenly() -> None:
    router = Router(num_workers=2, max_open=8)
    places = [[router.start(f"task{group}/{member}/0") for member in range(3)] for group in range(4)]
    assert places == [[0] * 3, [1] * 3, [0] * 3, [1] * 3]


def test_turns_stay_where_their_conversation_is_kept() -> None:
    router = Router(num_workers=3, max_open=1)
    first = router.start("a/0/0")
    router.end(first)
    others = [router.start(f"{name}/0/0") for name in "bcd"]
    assert sorted(others[:2]) == [1, 2]
    # Its worker may be full by now: its history is there.
    assert router.start("a/0/0") == first


def test_a_full_worker_leaves_newcomers_of_a_group_to_one_with_room() -> None:
    router = Router(num_workers=2, max_open=2)
    assert [router.start(f"task/{member}/0") for member in range(5)] == [0, 0, 1, 1, 0]  # the last finds both full
    router.end(0)
    router.end(0)
    assert router.start("task/9/0") == 0


def test_what_is_released_counts_no_more() -> None:
    router = Router(num_workers=2, max_open=8)
    for name in ("a/0/0", "b/0/0"):
        router.end(router.start(name))
    assert router.release("a/0/0") == 0
    assert router.release("a/0/0") is None
    assert router.release("unknown") is None
    assert router.start("c/0/0") == 0  # b is kept by 1, nothing by 0
    assert router.start("a/1/0") == 1  # its group was forgotten; both keep one, and 0 has an open request


def test_caches_that_are_gone_keep_nobody_in_place() -> None:
    router = Router(num_workers=2, max_open=8)
    busy = router.start("a/0/0")
    router.forget()
    assert router.start("a/1/0") == busy  # open requests go on where they are
    router.end(busy)
    router.end(busy)
    router.forget()
    assert [router.start("x/0/0"), router.start("a/0/0")] == [0, 1]
