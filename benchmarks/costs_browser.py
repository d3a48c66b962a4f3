"""Episodes per second and memory of the web site on its three surfaces, and of MiniWoB++ on fresh pages and on pages
that are used again.

    python benchmarks/costs_browser.py [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import time
from collections.abc import Awaitable, Callable
from random import Random

from turnwise_worlds.browser.browser import Browser, share_browser
from turnwise_worlds.browser.memory import measure_memory
from turnwise_worlds.browser.processes import find_descendants
from turnwise_worlds.browser.settings import BrowserSettings
from turnwise_worlds.miniwob.goals import find_words, plan
from turnwise_worlds.miniwob.pages import PagePool
from turnwise_worlds.miniwob.tasks import GROUPS
from turnwise_worlds.web.actions import Click, Type
from turnwise_worlds.web.page import TYPED
from turnwise_worlds.web.site.generate import make_state
from turnwise_worlds.web.surfaces.chromium import ChromiumSurface
from turnwise_worlds.web.surfaces.http import HttpSurface
from turnwise_worlds.web.surfaces.surface import Surface
from turnwise_worlds.web.surfaces.text import TextSurface

Episode = Callable[[int], Awaitable[None]]


async def visit(surface: Surface, seed: int) -> None:
    """Open a shop, search, and open the first hit."""
    seen = await surface.open(make_state(Random(seed), "terse"))
    field = next(node for node in seen.page.nodes if node.role in TYPED)
    assert field.number is not None
    seen = await surface.act(Type(field.number, "mug", enter=True))
    links = [node.number for node in seen.page.nodes if node.role == "link" and node.number is not None]
    if links:
        await surface.act(Click(links[0]))
    await surface.close()


async def do_task(pool: PagePool, seed: int) -> None:
    """Do a task of MiniWoB++ as its oracle does."""
    task = GROUPS["tiny"][seed % len(GROUPS["tiny"])]
    page = await pool.open(task, seed)
    for _ in range(4):
        step = plan(task, page.view.elements, find_words(task, page.view.goal))
        if page.view.is_done or step is None:
            break
        await page.act(step)
    await page.close()


async def count(episode: Episode, seconds: float) -> tuple[float, float]:
    """Play one after the other; returns episodes per second and processor seconds of an episode, this process's and its
    children's that live."""
    await episode(0)
    started, spent, played = time.perf_counter(), read_processor(), 0
    while time.perf_counter() - started < seconds:
        played += 1
        await episode(played)
    return played / (time.perf_counter() - started), (read_processor() - spent) / played


def read_processor() -> float:
    """Return the processor seconds of this process, and of those below it that live."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    total = used.ru_utime + used.ru_stime
    for pid in find_descendants(os.getpid())[1:]:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(seconds: float) -> dict[str, dict[str, float]]:
    """Return, for every surface, "episodes_per_s" with the whole machine as it is, "processor_ms" of an episode and the
    browser's "memory_mb"."""
    settings = BrowserSettings(max_pages=2)
    reusing, fresh = (PagePool(len(GROUPS["tiny"]), reuse=reuse) for reuse in (True, False))
    browser = share_browser(settings)
    episodes: dict[str, tuple[Episode, Browser | None]] = {
        "text": (lambda seed: visit(TextSurface(), seed), None),
        "http": (lambda seed: visit(HttpSurface(), seed), None),
        "chromium": (lambda seed: visit(ChromiumSurface(settings=settings), seed), browser),
        "chromium, with pictures": (
            lambda seed: visit(ChromiumSurface(settings=settings, pictures=True), seed),
            browser,
        ),
        "miniwob, pages used again": (lambda seed: do_task(reusing, seed), reusing.browser),
        "miniwob, fresh contexts": (lambda seed: do_task(fresh, seed), fresh.browser),
    }
    found = {}
    for name, (episode, used) in episodes.items():
        rate, processor = asyncio.run(count(episode, seconds))
        memory = sum(map(measure_memory, used.pids())) if used else 0
        found[name] = {"episodes_per_s": rate, "processor_ms": 1000 * processor, "memory_mb": memory / 1e6}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    print(f"{'':28}{'episodes/s':>12}{'processor ms':>14}{'browser MB':>12}")
    for name, row in measure(parser.parse_args().seconds).items():
        print(f"{name:28}{row['episodes_per_s']:12.1f}{row['processor_ms']:14.1f}{row['memory_mb']:12.0f}")


if __name__ == "__main__":
    main()
