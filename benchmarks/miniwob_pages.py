"""Open all 130 pages of MiniWoB++ without a network: each begins a task with a sentence, and the
same seed gives the same sentence. Exits with 1 if a page does not.

    python benchmarks/miniwob_pages.py
"""

from __future__ import annotations

import asyncio
import sys
import time

from turnwise.core.errors import TurnwiseError
from turnwise_worlds.miniwob.pages import PagePool
from turnwise_worlds.miniwob.tasks import TASKS

SEEDS = (1, 1, 2)


async def open_all() -> dict[str, str]:
    """Open every page three times; returns what is wrong with each, "" for nothing."""
    pool = PagePool(1, reuse=False)
    found: dict[str, str] = {}
    same = repeated = differs = 0
    for task in sorted(TASKS):
        try:
            views = []
            for seed in SEEDS:
                page = await pool.open(task, seed)
                views.append(page.view)
                await page.close()
        except TurnwiseError as error:
            found[task] = str(error)
            continue
        first, second, third = views
        same += first.goal == second.goal
        repeated += first == second
        differs += first != third
        found[task] = (
            "" if first.goal and first.goal == second.goal and not first.is_done else "no task, or another one"
        )
    print(
        f"the same seed: the same sentence on {same}, the same elements on {repeated}; another seed: another page on "
        f"{differs}"
    )
    return found


def main() -> None:
    """Run and print."""
    started = time.perf_counter()
    found = asyncio.run(open_all())
    wrong = {task: problem for task, problem in found.items() if problem}
    print(f"{len(found) - len(wrong)} of {len(found)} pages load, in {time.perf_counter() - started:.0f} s")
    for task, problem in wrong.items():
        print(f"{task}: {problem}")
    if wrong or len(found) != 130:
        sys.exit("failed")


if __name__ == "__main__":
    main()
