"""A slice of `benchmarks/fuzz_gateway.py`."""

import asyncio
from random import Random
from typing import Any

import pytest
from fuzzed_requests import Fuzzer, Recorder, check_captured
from gateway_world import serve


@pytest.mark.parametrize("seed", range(4))
def test_damaged_requests_are_answered_or_refused_and_every_sampled_token_is_kept(seed: int) -> None:
    served = serve(wrap=Recorder)
    engine: Any = served.policy.engine

    async def play() -> set[int]:
        fuzzer = Fuzzer(served, Random(seed))
        session = await fuzzer.open()
        statuses = {(await fuzzer.send()).status for _ in range(60)}
        assert check_captured(engine, session) > 0
        return statuses

    assert {200, 400} <= asyncio.run(play())
