"""Measure the cost of the search world by size, as JSON: building passages, building the index, one query, memory.

    python benchmarks/search_world.py [--sizes 1000 10000 100000 1000000]

Each size runs in a separate process, so that peak memory is measured separately. As a check it also measures the share
of the oracle's two-hop questions answered on that corpus."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any

NUM_TASKS = 50


def measure(num_passages: int) -> dict[str, Any]:
    """Measure one size."""
    from turnwise.core.types import Message, Scored, StopReason
    from turnwise.environments.search_qa.family import SearchQA

    family = SearchQA(mode="fixed", num_passages=num_passages, kinds={"2hop": 1.0}, num_phrasings=3, prompt="short")
    started = time.perf_counter()
    tasks = [family.task("heldout", index) for index in range(NUM_TASKS)]
    build_s = time.perf_counter() - started
    started = time.perf_counter()
    retriever = family.retriever(tasks[0])
    index_s = time.perf_counter() - started
    seconds = []
    for task in tasks:
        started = time.perf_counter()
        retriever.search(task.payload["question"], 3)
        seconds.append(time.perf_counter() - started)

    async def play() -> float:
        oracle, right = family.policy("oracle"), 0.0
        for task in tasks:
            environment = family.build_environment(task)
            messages: list[Message] = list((await environment.reset(task, 0)).messages)
            replies: list[Message] = []
            done = False
            while not done and len(replies) < 9:
                replies.append(oracle.reply(task, messages, Random(0)))
                result = await environment.step(replies[-1])
                messages += [replies[-1], *result.observations]
                done = result.done
            reward = await environment.score(replies, StopReason.DONE)
            right += reward.total if isinstance(reward, Scored) else 0.0
            await environment.close()
        return right / len(tasks)

    return {
        "passages": len(retriever.passages),
        "build_passages_and_tasks_s": round(build_s, 3),
        "build_index_s": round(index_s, 3),
        "query_ms_median": round(1e3 * statistics.median(seconds), 3),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "oracle_2hop_success": asyncio.run(play()),
    }


def main() -> None:
    """Measure every size in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    rows = []
    for size in parser.parse_args().sizes:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            rows.append(pool.submit(measure, size).result())
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
