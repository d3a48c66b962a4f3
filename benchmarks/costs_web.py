"""Print what the web costs, as JSON on standard output: pages and episodes per second of one thread.

    python benchmarks/costs_web.py [SECONDS]

Episodes are the oracle's in a terse shop (search, open, choose, buy), with the environment's tools and the policy;
seconds are those of the processor, after one episode that loads what is needed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from random import Random

from turnwise.core.types import StopReason
from turnwise_worlds.web.family import Web
from turnwise_worlds.web.surfaces.surface import SurfaceName

TERSE = {"site": "terse", "actions": "webshop", "format": "short", "kinds": {"shop": 1.0}}
"""The arguments of `recipes/web/shop.toml`."""
MAX_TURNS = 8


def measure(seconds: float) -> dict[str, float]:
    """Return pages and episodes per second by surface; each takes `seconds`."""
    measured: dict[str, float] = {}
    surfaces: tuple[SurfaceName, ...] = ("text", "http")
    for surface in surfaces:
        pages, episodes, taken = asyncio.run(_visit(Web(**TERSE, surface=surface), seconds))
        measured[f"{surface}_pages_per_s"], measured[f"{surface}_episodes_per_s"] = pages / taken, episodes / taken
    return {name: round(value, 1) for name, value in measured.items()}


async def _visit(family: Web, seconds: float) -> tuple[int, int, float]:
    """Return the pages, the episodes, and the processor's seconds that they took."""
    await _play(family, 0)
    pages = episodes = 0
    started, ends = time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        episodes += 1
        pages += await _play(family, episodes)
    return pages, episodes, time.process_time() - started


async def _play(family: Web, index: int) -> int:
    """Play one episode; returns its pages."""
    task, policy = family.task("heldout", index), family.policy("oracle")
    environment = family.build_environment(task)
    messages = list((await environment.reset(task, 0)).messages)
    pages = 1
    for _ in range(MAX_TURNS):
        messages.append(policy.reply(task, messages, Random(0)))
        result = await environment.step(messages[-1])
        messages += result.observations
        pages += not result.done
        if result.done:
            break
    await environment.score([], StopReason.DONE)
    await environment.close()
    return pages


if __name__ == "__main__":
    print(json.dumps(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)))
