"""The page bookkeeping: sharing, copying on divergence, eviction, and its invariants under random use."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import EngineError
from turnwise.engines.paged.prefix_cache import Lease, PrefixCache


def begin(cache: PrefixCache, tokens: list[int]) -> tuple[Lease, tuple[int, int] | None]:
    lease, copy = cache.acquire(tokens)
    assert cache.extend(lease, len(tokens))
    return lease, copy


def run(cache: PrefixCache, tokens: list[int]) -> list[int]:
    """A request that computes all its tokens and ends; returns the pages it used."""
    lease, _ = begin(cache, tokens)
    cache.register(lease, tokens, len(tokens))
    pages = list(lease.pages)
    cache.release(lease)
    return pages


def test_a_second_request_gets_the_pages_of_the_first_but_must_run_its_last_token() -> None:
    cache = PrefixCache(num_pages=8, page_size=4)
    pages = run(cache, list(range(8)))
    lease, copy = cache.acquire(list(range(8)))
    # The first page is shared whole; of the second only tokens 4, 5, 6: token 7 must run, so the page is copied.
    assert lease.pages[0] == pages[0]
    assert lease.num_reused == 7
    assert copy == (pages[1], lease.pages[1])


def test_a_conversation_goes_on_in_its_own_half_full_page() -> None:
    cache = PrefixCache(num_pages=8, page_size=4)
    pages = run(cache, [1, 2, 3, 4, 5, 6])
    lease, copy = cache.acquire([1, 2, 3, 4, 5, 6, 7, 8])
    assert (lease.pages, lease.num_reused, copy) == (pages, 6, None)


def test_a_half_full_page_in_use_is_copied_never_shared() -> None:
    cache = PrefixCache(num_pages=8, page_size=4)
    run(cache, [1, 2, 3])
    first, _ = cache.acquire([1, 2, 3, 9])
    second, copy = cache.acquire([1, 2, 3, 8])
    assert copy == (first.pages[0], second.pages[0])
    assert first.pages != second.pages


def test_two_who_computed_the_same_page_end_up_sharing_one() -> None:
    cache = PrefixCache(num_pages=8, page_size=2)
    first, _ = begin(cache, [1, 2, 3])
    second, _ = begin(cache, [1, 2, 4])
    cache.register(first, [1, 2, 3], 2)
    cache.register(second, [1, 2, 4], 2)
    assert first.pages[0] == second.pages[0]
    # Pages: the shared one and one tail each. The duplicate is free again.
    assert cache.num_held == 3


def test_the_least_recently_used_leaf_goes_first_and_a_released_conversation_before_it() -> None:
    def cached(cache: PrefixCache, tokens: list[int]) -> bool:
        lease, _ = cache.acquire([*tokens, 0])
        cache.release(lease)
        return lease.num_reused >= len(tokens)

    for retire, survivors in ((False, [False, True]), (True, [True, False])):
        cache = PrefixCache(num_pages=2, page_size=2)
        run(cache, [1, 1])
        lease, _ = begin(cache, [2, 2])
        cache.register(lease, [2, 2], 2)
        node = lease.node
        cache.release(lease)
        if retire:
            cache.retire(node)
        begin(cache, [3, 3])  # needs one page
        assert [cached(cache, [1, 1]), cached(cache, [2, 2])] == survivors


def test_memory_short_is_said_not_raised_and_clear_refuses_while_in_use() -> None:
    cache = PrefixCache(num_pages=2, page_size=2)
    lease, _ = begin(cache, [1, 2, 3, 4])
    other, _ = cache.acquire([5])
    assert not cache.extend(other, 1)
    with pytest.raises(EngineError, match="2 pages are in use"):
        cache.clear(1)
    cache.release(lease)
    cache.clear(1)
    assert (cache.num_available, cache.version) == (2, 1)


def test_discard_forgets_what_a_failed_request_wrote() -> None:
    cache = PrefixCache(num_pages=4, page_size=2)
    lease, _ = begin(cache, [1, 2, 3])
    cache.register(lease, [1, 2, 3], 3)  # one whole page, one half page known to the tree
    doubtful = lease.pages[1:]
    assert cache.discard(lease) == doubtful
    reacquired, copy = cache.acquire([1, 2, 3, 4])
    assert (reacquired.num_reused, copy) == (2, None)


def test_tokens_behind_older_weights_are_counted_where_they_are_kept() -> None:
    cache = PrefixCache(num_pages=4, page_size=2)
    run(cache, [1, 2])
    cache.version = 5  # what `reuse_stale_cache` does instead of clear
    lease, _ = begin(cache, [1, 2, 3, 4, 9])
    assert (lease.num_reused, lease.num_stale) == (2, 2)
    cache.register(lease, [1, 2, 3, 4, 9], 5)
    cache.release(lease)
    # Tokens 3 and 4 were computed with weights 5, but from keys of weights 0.
    assert cache.acquire([1, 2, 3, 4, 7])[0].num_stale == 4


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(3, 24), st.sampled_from([1, 2, 3, 4]))
def test_pages_hold_what_the_tree_says_whatever_happens(seed: int, num_pages: int, size: int) -> None:
    """A model of the memory: every page remembers, per place, the whole token history written there.

    Reading anything but the reader's own history would be a wrong answer; writing a place that somebody else may read
    is caught because the next read of it differs.
    """
    draw = random.Random(seed)
    cache = PrefixCache(num_pages=num_pages, page_size=size)
    memory: dict[tuple[int, int], tuple[int, ...]] = {}
    live: list[tuple[Lease, list[int], int]] = []

    def check(lease: Lease, tokens: list[int], computed: int) -> None:
        for at in range(computed):
            assert memory[lease.pages[at // size], at % size] == tuple(tokens[: at + 1])

    for _ in range(60):
        action = draw.choice(["begin", "begin", "write", "write", "register", "end", "fail"])
        if action == "begin":
            tokens = [draw.randrange(2) for _ in range(draw.randrange(1, 4 * size + 2))]
            lease, copy = cache.acquire(tokens)
            if copy is not None:
                memory.update(
                    {(copy[1], place): memory[copy[0], place] for place in range(size) if (copy[0], place) in memory}
                )
            assert lease.num_reused < len(tokens)
            live.append((lease, tokens, lease.num_reused))
        elif live:
            index = draw.randrange(len(live))
            lease, tokens, computed = live[index]
            if action == "write" and computed < len(tokens) and cache.extend(lease, computed + 1):
                memory[lease.pages[computed // size], computed % size] = tuple(tokens[: computed + 1])
                live[index] = (lease, tokens, computed + 1)
            elif action == "register":
                cache.register(lease, tokens, computed)
            elif action in ("end", "fail"):
                del live[index]
                if action == "fail":
                    for page in cache.discard(lease):
                        for place in range(size):
                            memory.pop((page, place), None)
                else:
                    cache.register(lease, tokens, computed)
                    cache.release(lease)
        for lease, tokens, computed in live:
            check(lease, tokens, computed)
        # Nothing is lost: what no lease holds can be allocated.
        assert cache.num_held == len({page for lease, _, _ in live for page in lease.pages})
    for lease, _, _ in live:
        cache.release(lease)
    assert cache.num_available == num_pages
    whole, _ = cache.acquire([9] * (num_pages * size))
    assert cache.extend(whole, num_pages * size)
    assert sorted(whole.pages) == list(range(1, num_pages + 1))
