"""The scheduler as a state machine: order, chunks, waiting for a shared beginning, preemption."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.types import SamplingParams, Session
from turnwise.engines.paged.prefix_cache import PrefixCache
from turnwise.engines.paged.scheduler import Plan, Request, Scheduler


def request(tokens: list[int], max_tokens: int = 4) -> Request:
    return Request(
        Session("s", "0"), list(tokens), len(tokens), SamplingParams(max_tokens=max_tokens), np.zeros(max_tokens)
    )


def build(num_pages: int = 100, page_size: int = 4, max_running: int = 8, max_batch_tokens: int = 100) -> Scheduler:
    return Scheduler(
        PrefixCache(num_pages=num_pages, page_size=page_size),
        max_running=max_running,
        max_batch_tokens=max_batch_tokens,
    )


def step(scheduler: Scheduler, token: int = 7) -> tuple[Plan, list[Request]]:
    """Run one planned step; every sampling request samples `token`. Returns the plan and who finished."""
    plan = scheduler.plan()
    sampling = [item.request for item in plan.items if item.samples]
    scheduler.commit(plan.items)
    finished = []
    for one in sampling:
        one.tokens.append(token)
        one.logprobs.append(0.0)
        if one.num_sampled == one.params.max_tokens:
            scheduler.finish(one)
            finished.append(one)
    return plan, finished


def spans(plan: Plan) -> list[tuple[int, int]]:
    return [(item.start, item.count) for item in plan.items]


def test_a_long_prompt_runs_in_chunks_beside_decoding_ones() -> None:
    scheduler = build(max_batch_tokens=6)
    scheduler.submit(request([1, 2]))
    scheduler.submit(request(list(range(10, 20))))
    # 6 tokens per step: 2 of the first prompt and 4 of the second; then 1 decoding and 5; then 1 and the last one.
    assert [spans(step(scheduler)[0]) for _ in range(3)] == [[(0, 2), (0, 4)], [(2, 1), (4, 5)], [(3, 1), (9, 1)]]


def test_siblings_wait_for_the_beginning_one_of_them_computes() -> None:
    scheduler = build(page_size=4)
    prompt = list(range(10))
    for _ in range(3):
        scheduler.submit(request(prompt))
    assert spans(step(scheduler)[0]) == [(0, 10)]
    second, _ = step(scheduler)
    # The first decodes; its siblings run the last prompt token only: two whole pages are shared, one is copied.
    assert spans(second) == [(10, 1), (9, 1), (9, 1)]
    assert len(second.copies) == 2


def test_a_stranger_does_not_wait() -> None:
    scheduler = build()
    scheduler.submit(request([1] * 8))
    scheduler.submit(request([1] * 8))
    scheduler.submit(request([2] * 8))
    assert spans(step(scheduler)[0]) == [(0, 8), (0, 8)]


def test_the_latest_arrival_makes_room_and_comes_back_with_all_its_tokens() -> None:
    # Three pages of 4: both prompts of 4 are admitted while each may take one more page; the third page goes to the
    # first.
    scheduler = build(num_pages=3, page_size=4)
    first, second = request([1, 1, 1], 6), request([2, 2, 2], 3)
    scheduler.submit(first)
    scheduler.submit(second)
    finished: list[Request] = []
    for _ in range(20):
        finished += step(scheduler)[1]
    assert scheduler.num_active == 0
    assert set(finished) == {first, second}
    assert second.tokens == [2, 2, 2, 7, 7, 7]


def test_an_abandoned_leader_lets_the_others_go_on() -> None:
    scheduler = build(max_batch_tokens=4)
    leader, follower = request(list(range(12))), request(list(range(12)))
    scheduler.submit(leader)
    scheduler.submit(follower)
    assert spans(step(scheduler)[0]) == [(0, 4)]
    scheduler.abandon(leader)
    assert spans(step(scheduler)[0]) == [(0, 4)]
    assert scheduler.running == [follower]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(1, 6)), min_size=1, max_size=10
    ),
    st.integers(5, 30),
    st.integers(1, 20),
    st.integers(1, 5),
)
def test_everything_finishes_however_small_the_memory(
    jobs: list[tuple[list[int], int]], num_pages: int, max_batch_tokens: int, max_running: int
) -> None:
    # The longest possible job, 12 + 6 tokens, fits five pages of 4.
    scheduler = build(num_pages=num_pages, page_size=4, max_batch_tokens=max_batch_tokens, max_running=max_running)
    requests = [request(*job) for job in jobs]
    for one in requests:
        scheduler.submit(one)
    finished: list[Request] = []
    for _ in range(2000):
        if not scheduler.num_active:
            break
        plan, done = step(scheduler)
        assert plan.items
        assert sum(item.count for item in plan.items) <= max_batch_tokens
        assert len(scheduler.running) <= max_running
        finished += done
    assert len(finished) == len(requests)
    assert all(one.tokens == prompt + [7] * count for one, (prompt, count) in zip(requests, jobs, strict=True))
    assert scheduler.cache.num_held == 0
