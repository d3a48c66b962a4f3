"""Compare rollout processes with a single process: trajectories per second, and seconds to publish weights.

    python benchmarks/rollouts.py [--rounds 3] [--ray]

*Throughput*: the same 16 groups of 8 of recipes/search_r1/tiny.toml from random weights (replies are long),
in the run's process and in one and two rollout processes, in turn; ratios to the run's process in the same round.
*Publication*: every weight changes, then `pause`, `adopt` (write, read and sum, load, sum again) and `resume` with two
processes that play nothing; with --ray also of an actor on a node that does not share the folder, through the object
store. Everything on one thread per process."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import torch

from turnwise.config.load import load_config
from turnwise.core.types import Draw
from turnwise.hosts.ray_cluster import RayCluster
from turnwise.runs.build import System, build_system

RECIPE = Path(__file__).parent.parent / "recipes" / "search_r1" / "tiny.toml"
SIZES = {
    "2M": ["model.config.num_hidden_layers=6", "model.config.hidden_size=128", "model.config.intermediate_size=512"],
    "20M": ["model.config.num_hidden_layers=12", "model.config.hidden_size=384", "model.config.intermediate_size=1024"],
    "135M": [
        "model.config.num_hidden_layers=32",
        "model.config.hidden_size=640",
        "model.config.intermediate_size=1536",
    ],
}
NUM_GROUPS, GROUP_SIZE = 16, 8


@asynccontextmanager
async def open_system(*overrides: str) -> AsyncIterator[System]:
    """A system of the recipe with these options."""
    options = ["engine.num_threads=1", "train.num_threads=1", "tokenizer.num_texts=500", *overrides]
    system = build_system(load_config([RECIPE], options), training=True)
    try:
        yield system
    finally:
        await system.close()


async def play(system: System, *, here: bool, first: int) -> float:
    """Trajectories per second."""
    worker = system.worker("train")
    worker = replace(worker, elsewhere=None) if here else worker
    draws = [
        Draw(index=first + number, task=system.family.task("train", first + number)) for number in range(NUM_GROUPS)
    ]
    began = time.perf_counter()
    await worker.run_groups(draws, group_size=GROUP_SIZE)
    return NUM_GROUPS * GROUP_SIZE / (time.perf_counter() - began)


async def measure_throughput(rounds: int) -> None:
    """Print trajectories per second and ratios."""
    async with open_system("rollout.num_workers=1") as one, open_system("rollout.num_workers=2") as two:
        rows: list[list[float]] = []
        for number in range(-1, rounds):
            first = (number + 1) * NUM_GROUPS
            row = [
                await play(one, here=True, first=first),
                await play(one, here=False, first=first),
                await play(two, here=False, first=first),
            ]
            if number >= 0:  # the first time processes start
                rows.append(row)
    print("| | trajectories/s, median | ratio to the run's process: minimum, median, maximum |\n|---|---|---|")
    for index, name in enumerate(("the run's process", "1 rollout process", "2 rollout processes")):
        ratios = sorted(row[index] / row[0] for row in rows)
        print(
            f"| {name} | {statistics.median(row[index] for row in rows):.1f} | {ratios[0]:.2f}, "
            f"{statistics.median(ratios):.2f}, {ratios[-1]:.2f} |"
        )


async def measure_publication(size: str, rounds: int, *overrides: str) -> tuple[int, float, float]:
    """Number of parameters; median seconds of `adopt` and of the whole publication."""
    async with open_system(*SIZES[size], "rollout.num_workers=2", "engine.max_concurrency=8", *overrides) as system:
        pool = system.rollouts
        assert pool is not None
        draws = [Draw(index=number, task=system.family.task("train", number)) for number in range(2)]
        worker = system.worker("train")
        await replace(worker, limits=replace(worker.limits, max_turns=1, max_turn_tokens=2)).run_groups(
            draws, group_size=1
        )
        rows: list[tuple[float, float]] = []
        for version in range(1, rounds + 1):
            with torch.no_grad():
                for parameter in system.model.parameters():
                    parameter.mul_(1.001)
            began = time.perf_counter()
            await pool.pause()
            paused = time.perf_counter()
            await pool.adopt(version)
            adopted = time.perf_counter()
            await pool.resume()
            rows.append((adopted - paused, time.perf_counter() - began))
        parameters = sum(parameter.numel() for parameter in system.model.parameters())
    return parameters, statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows)


async def never_holds(*_: object) -> bool:
    """Pretends that no actor shares our folders."""
    return False


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    asyncio.run(measure_throughput(args.rounds))
    ways: dict[str, list[str]] = {"local, shared memory": []}
    if args.ray:
        ways |= {
            "Ray, shared memory": ["scale.ray=local", "scale.cpus=0"],
            "Ray, object store": ["scale.ray=local", "scale.cpus=0"],
        }
    print("\n| parameters | transport | adopt s | all s |\n|---|---|---|---|")
    holds = RayCluster.holds
    for size in SIZES:
        for way, overrides in ways.items():
            RayCluster.holds = never_holds if way.endswith("store") else holds  # type: ignore[assignment, method-assign]
            count, adopt_s, all_s = asyncio.run(measure_publication(size, args.rounds, *overrides))
            print(f"| {count / 1e6:.1f} M | {way} | {adopt_s:.2f} | {all_s:.2f} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
