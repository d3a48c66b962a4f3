"""A slice of `benchmarks/fuzz_gateway.py --sessions`: bytes sampled equal bytes trained."""

import asyncio
from random import Random

import pytest
from fuzzed_sessions import play_sessions


@pytest.mark.parametrize("seed", range(2))
def test_what_is_sampled_in_a_session_is_what_trains(seed: int) -> None:
    total = asyncio.run(play_sessions(20, Random(seed)))
    assert total["trained"] + total["undelivered"] == total["sampled"]
    # Every kind of behaviour occurs, or the comparison shows less than it says.
    for kind in ("undelivered", "continued", "branched", "opened", "coalesced", "reasoning_dropped"):
        assert total[kind] > 0, kind
