"""Play many episodes in Chromium, kill it in mid-episode, kill its owner, and show that nothing is left and memory does
not grow. Exits with 1 if a check fails.

    python benchmarks/soak_browser.py [--episodes 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from turnwise_worlds.browser.browser import Browser, share_browser
from turnwise_worlds.browser.memory import measure_memory
from turnwise_worlds.browser.processes import find_descendants, wait_for_end
from turnwise_worlds.browser.settings import BrowserSettings
from turnwise_worlds.web.actions import Click, Type
from turnwise_worlds.web.page import TYPED
from turnwise_worlds.web.site.generate import make_state
from turnwise_worlds.web.surfaces.chromium import ChromiumSurface
from turnwise_worlds.web.surfaces.surface import SurfaceError

FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
GROWTH = 1.25
"""Most that the memory of the last fifth may be of that of the second fifth."""
END_S = 10.0


def list_traces() -> set[str]:
    """Return the files and folders where a browser could leave something."""
    entries = {str(path) for folder in FOLDERS if Path(folder).is_dir() for path in Path(folder).iterdir()}
    return {entry for entry in entries if any(word in entry.lower() for word in ("playwright", "chrom"))}


async def play(settings: BrowserSettings, seed: int, opened: asyncio.Event) -> None:
    """Play an episode of two actions; set `opened` once the first page is shown."""
    surface = ChromiumSurface(settings=settings)
    try:
        seen = await surface.open(make_state(Random(seed), "terse"))
        opened.set()
        field = next(node for node in seen.page.nodes if node.role in TYPED)
        assert field.number is not None
        seen = await surface.act(Type(field.number, "mug", enter=True))
        links = [node.number for node in seen.page.nodes if node.role == "link" and node.number is not None]
        if links:
            await surface.act(Click(links[0]))
    finally:
        await surface.close()


async def play_many(settings: BrowserSettings, count: int) -> tuple[list[int], int, set[int]]:
    """Play episodes, two at a time, and kill the browser once; returns memory in bytes, lost episodes and processes."""
    browser = share_browser(settings)
    memory: list[int] = []
    pids: set[int] = set()
    num_lost = 0
    for first in range(0, count, 2):
        opened = asyncio.Event()
        playing = [asyncio.ensure_future(play(settings, seed, opened)) for seed in (first, first + 1)]
        if first == count // 6 * 2:
            await asyncio.wait_for(opened.wait(), END_S)
            os.kill(browser.pids()[-1], signal.SIGKILL)
        results = await asyncio.gather(*playing, return_exceptions=True)
        for result in results:
            if isinstance(result, SurfaceError):
                num_lost += 1
            elif result is not None:
                raise result
        if first % 20 == 0:
            pids.update(pid for top in browser.pids() for pid in find_descendants(top))
            memory.append(sum(map(measure_memory, browser.pids())))
    return memory, num_lost, pids


def kill_owner() -> list[int]:
    """Kill a process that has a browser, in mid-episode; returns what is left of it."""
    owner = subprocess.Popen([sys.executable, __file__, "--own"], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    owner.stdout.readline()
    pids = set(find_descendants(owner.pid))
    owner.kill()
    owner.wait()
    return wait_for_end(pids, END_S)


async def own() -> None:
    """Open a page, say so, and wait to be killed."""
    surface = ChromiumSurface()
    await surface.open(make_state(Random(0), "terse"))
    print("open", flush=True)
    await asyncio.sleep(600)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--own", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.own:
        asyncio.run(own())
        return
    before = list_traces()
    settings = BrowserSettings(max_pages=2)
    started = time.perf_counter()
    memory, num_lost, pids = asyncio.run(play_many(settings, chosen.episodes))
    seconds = time.perf_counter() - started
    browser: Browser = share_browser(settings)
    browser.close()
    left = wait_for_end(pids, END_S)
    orphans = kill_owner()
    traces = list_traces() - before
    fifth = max(len(memory) // 5, 1)
    early, late = (statistics.median(part) / 1e6 for part in (memory[fifth : 2 * fifth], memory[-fifth:]))
    print(f"{chosen.episodes} episodes in {seconds:.0f} s, {chosen.episodes / seconds:.1f} per second")
    print(f"memory: {early:.0f} MB in the second fifth, {late:.0f} MB in the last; at most {max(memory) / 1e6:.0f} MB")
    print(f"episodes lost to the browser that was killed: {num_lost} (2 were being played)")
    print(f"left of {len(pids)} processes: {len(left)}; of a killed owner's: {len(orphans)}; files: {sorted(traces)}")
    if left or orphans or traces or late > GROWTH * early or not 1 <= num_lost <= 2:
        sys.exit("failed")


if __name__ == "__main__":
    main()
