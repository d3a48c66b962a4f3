"""Faults planted in visits are found: the small version of `benchmarks/badcases.py`."""

import asyncio
import importlib
import sys
from pathlib import Path

from turnwise_worlds.web.faults import NAMES


def test_every_planted_fault_of_a_visit_is_named_in_its_turn() -> None:
    sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))  # a benchmark imports its neighbours
    badcases = importlib.import_module("badcases")
    planter = badcases.build_planter("shop")
    found = asyncio.run(badcases.measure(planter, range(6), with_oracle=False))
    assert found.wrong == []
    assert found.num_right == found.pairs.total() > 60
    planted = {planted for planted, _ in found.pairs}
    assert planted >= set(NAMES) | {"format", "limit", "tool failure", "gave up", "repeated itself"}
