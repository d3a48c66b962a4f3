"""A thread of one owner: its jobs stay together, one that hangs is left behind, and nothing is joined."""

import asyncio
import sqlite3
import threading

import pytest

from turnwise.core import threads
from turnwise.core.threads import OwnThread, run_in_thread, run_method


def test_jobs_of_one_owner_run_in_one_thread_and_two_owners_have_two() -> None:
    async def work() -> tuple[list[int], list[int]]:
        mine, theirs = OwnThread(), OwnThread()
        pairs = [await asyncio.gather(mine.run(threading.get_ident), theirs.run(threading.get_ident)) for _ in range(5)]
        mine.free()
        theirs.free()
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    mine, theirs = asyncio.run(work())
    assert len(set(mine)) == len(set(theirs)) == 1
    assert mine[0] != theirs[0] != threading.get_ident()


def test_a_freed_thread_serves_others_and_a_further_job_takes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_idle", [])

    async def work() -> tuple[int, int]:
        own = OwnThread()
        first = await own.run(threading.get_ident)
        worker = own._worker
        own.free()
        while worker not in threads._idle:  # the thread puts itself back
            await asyncio.sleep(0)
        threads._idle[:] = [worker]  # without those of owners that were collected meanwhile
        return first, await run_in_thread(threading.get_ident)

    first, second = asyncio.run(work())
    assert first == second


def test_a_job_that_hangs_makes_the_thread_busy_and_nobody_waits_for_it() -> None:
    release = threading.Event()

    async def work() -> list[bool]:
        own = OwnThread()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(own.run(release.wait), 0.02)
        seen = [own.is_busy]
        own.free()
        release.set()
        while own.is_busy:
            await asyncio.sleep(0)
        return [*seen, own.is_busy]

    assert asyncio.run(work()) == [True, False]


def test_what_a_job_raises_is_raised_and_the_thread_goes_on() -> None:
    async def work() -> int:
        own = OwnThread()
        for error in (ValueError("x"), SystemExit(1)):

            def fail(error: BaseException = error) -> None:
                raise error

            with pytest.raises((ValueError, RuntimeError)):
                await own.run(fail)
        assert not own.is_busy
        return await own.run(lambda: 3)

    assert asyncio.run(work()) == 3


def test_a_connection_of_sqlite_lives_in_it() -> None:
    async def work() -> int:
        own = OwnThread()
        base = await own.run(lambda: sqlite3.connect(":memory:"))
        await own.run(lambda: base.execute("create table stock (number integer)"))
        await own.run(lambda: base.execute("insert into stock values (7)"))
        (number,) = await own.run(lambda: base.execute("select number from stock").fetchone())
        await own.run(base.close)
        return int(number)

    assert asyncio.run(work()) == 7


def test_a_plain_function_may_return_an_awaitable() -> None:
    async def later() -> int:
        return threading.get_ident()

    assert asyncio.run(run_method(lambda: later())) == threading.get_ident()
    assert asyncio.run(run_method(later)) == threading.get_ident()
    assert asyncio.run(run_method(threading.get_ident)) != threading.get_ident()
