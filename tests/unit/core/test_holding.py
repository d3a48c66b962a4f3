"""Who holds the event loop is named while it does, once, with the place; who waits is never named."""

import asyncio
import threading
import time

import pytest

from turnwise.core.holding import Watch, holding, named


def look_from_a_thread(watch: Watch, *, later_s: float) -> list[str]:
    """What the watch says `later_s` from now, asked in another thread as the watching one does."""
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.extend(watch.look(time.monotonic() + later_s)))
    thread.start()
    thread.join()
    return lines


def test_what_blocks_is_named_with_its_place_and_once() -> None:
    watch, said = Watch(limit_s=10.0), []

    async def search() -> str:
        said.append(look_from_a_thread(watch, later_s=9.0))
        said.append(look_from_a_thread(watch, later_s=11.0))
        said.append(look_from_a_thread(watch, later_s=20.0))
        return "found"

    assert asyncio.run(named("tool 'search'", search(), watch)) == "found"
    early, late, again = said
    assert (early, again) == ([], [])
    assert late[0].startswith("alarm: tool 'search' has held the event loop for 11 s (test_holding.py:")
    assert " in search)" in late[0]
    assert watch.holds == {}


def test_who_waits_does_not_hold() -> None:
    watch = Watch(limit_s=0.0)

    async def work() -> list[str]:
        event = asyncio.Event()
        waiting = asyncio.ensure_future(named("tool 'wait'", event.wait(), watch))
        await asyncio.sleep(0)
        lines = look_from_a_thread(watch, later_s=1.0)
        event.set()
        assert await waiting
        return lines

    assert asyncio.run(work()) == []


def test_of_nested_names_the_innermost_that_is_late_is_told() -> None:
    watch = Watch(limit_s=10.0)

    async def inner() -> list[str]:
        return look_from_a_thread(watch, later_s=11.0)

    async def outer() -> list[str]:
        first = await named("tool 'search'", inner(), watch)
        return first + look_from_a_thread(watch, later_s=12.0)

    lines = asyncio.run(named("Shop.step", outer(), watch))
    assert [line.split(" has held")[0] for line in lines] == ["alarm: tool 'search'", "alarm: Shop.step"]


def test_results_exceptions_and_cancellations_pass() -> None:
    watch = Watch()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def hang() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "obeyed"
        return "not cancelled"

    async def work() -> str:
        with pytest.raises(KeyError):
            await named("a", fail(), watch)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await named("b", asyncio.Event().wait(), watch)
        task = asyncio.ensure_future(named("c", hang(), watch))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(work()) == "obeyed"
    assert watch.holds == {}


def test_a_block_of_plain_code_can_be_named() -> None:
    watch = Watch(limit_s=5.0)
    with holding("the task of row 3", watch):
        assert "the task of row 3" in look_from_a_thread(watch, later_s=6.0)[0]
    assert look_from_a_thread(watch, later_s=6.0) == []


def test_listeners_hear_it_instead_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(limit_s=0.0)
    heard: list[str] = []
    with holding("x", watch):
        watch.report(time.monotonic() + 1)
        assert "x has held" in caplog.text
        watch.told.clear()
        watch.tells.append(heard.append)
        caplog.clear()
        watch.report(time.monotonic() + 1)
    assert len(heard) == 1
    assert caplog.text == ""


@pytest.mark.parametrize("late", [False, True])
def test_user_code_that_exits_fails_and_does_not_end_the_loop(late: bool) -> None:
    async def score() -> float:
        if late:
            await asyncio.sleep(0)
        raise SystemExit(0)

    async def run() -> str:
        with pytest.raises(RuntimeError, match="SystemExit: 0"):
            await named("the reward", score())
        return "goes on"

    assert asyncio.run(run()) == "goes on"
