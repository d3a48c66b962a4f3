"""A step that cannot be computed, whatever Turnwise's error, fails the requests that wait for it."""

from __future__ import annotations

import asyncio

from turnwise.core.errors import EngineError, StoreError
from turnwise.engines.pump import Pump


class Missing:
    """Steps of one request whose picture is gone."""

    def __init__(self) -> None:
        self.failed: list[EngineError] = []

    def plan(self) -> int | None:
        return None if self.failed else 1

    def compute(self, plan: int) -> int:
        raise StoreError("picture abc is missing")

    def settle(self, plan: int, result: int) -> None:
        raise AssertionError("nothing was computed")

    def fail(self, error: EngineError) -> None:
        self.failed.append(error)


def test_an_error_of_the_store_fails_the_requests() -> None:
    steps = Missing()

    async def play() -> None:
        pump: Pump[int, int] = Pump(steps, num_threads=1)
        pump.start()
        async with asyncio.timeout(60):
            await pump.drain()
        await pump.close()

    asyncio.run(play())
    assert [str(error) for error in steps.failed] == ["picture abc is missing"]
