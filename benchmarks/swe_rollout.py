"""Measures episodes of agents in real repositories: tool calls per second, share of time in tools, memory, and
leftovers.

    turnwise bugs make toolz==1.2.0 tinydb==4.9.0 schema==0.7.8 xmltodict==1.0.4 --out bugs.jsonl --num 16
    python benchmarks/swe_rollout.py bugs.jsonl                       # 64 episodes at once of the oracle
    python benchmarks/swe_rollout.py bugs.jsonl --protocol mini --episodes 8 --slots 1

The policy answers at once, so that what is measured is the environment: sessions on trees, tools, and grading in fresh
trees. Real time depends on other load on the machine; processor seconds are those of this process and of everything in
the sandbox."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.types import Scored
from turnwise.environments.episodes import Episode, Played
from turnwise_sandbox import LocalSandbox
from turnwise_sandbox.kernel.owner import own_tag
from turnwise_swe.environment.family import Swe

MAX_TURNS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of the episodes."""

    played: Sequence[Played]
    wall_s: float
    cpu_s: float
    taken_bytes: int
    """Maximum drop in available memory."""


SANDBOXES: list[LocalSandbox] = []
"""The sandbox that the family opened."""


def build_sandbox(num_slots: int) -> LocalSandbox:
    """A sandbox whose processor time can be read."""
    SANDBOXES.append(LocalSandbox(num_slots=num_slots))
    return SANDBOXES[-1]


def available_bytes() -> int:
    """The machine's available memory."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(row.split()[1]) * 1024 for row in file if row.startswith("MemAvailable:"))


def count_left() -> dict[str, int]:
    """Counts of what this process has on the machine: processes, mounts and folders of sandboxes."""
    return {
        "processes": len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "folders": len(list(Path(tempfile.gettempdir()).glob(f"turnwise-sandbox-{own_tag()}-*"))),
    }


async def play_all(family: Swe, policy: str, count: int) -> list[Played]:
    """Play all episodes at once."""

    async def play(index: int) -> Played:
        task = family.task("train", index)
        episode = Episode(family, task, family.policy(policy), seed=index, max_turns=MAX_TURNS)
        try:
            await episode.open()
            while not episode.is_over:
                await episode.turn()
            return await episode.finish()
        finally:
            await episode.close()

    return await asyncio.gather(*(play(index) for index in range(count)))


def measure(family: Swe, policy: str, count: int) -> Measured:
    """Play the episodes while a thread measures the machine's memory."""
    asyncio.run(play_all(family, policy, 1))  # starts the sandbox
    sandbox, least, is_over = SANDBOXES[-1], [available_bytes()], threading.Event()
    before = least[0]

    def watch() -> None:
        while not is_over.wait(0.1):
            least[0] = min(least[0], available_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started, spent = time.perf_counter(), time.process_time() + sandbox.processor_seconds()
    played = asyncio.run(play_all(family, policy, count))
    wall_s = time.perf_counter() - started
    cpu_s = time.process_time() + sandbox.processor_seconds() - spent
    is_over.set()
    watcher.join()
    return Measured(played=played, wall_s=wall_s, cpu_s=cpu_s, taken_bytes=before - least[0])


def show(measured: Measured) -> list[str]:
    """The lines to print."""
    records = [record for each in measured.played for result in each.results for record in result.tool_records]
    in_tools = sum(record.seconds for record in records)
    in_grades = sum(each.seconds[-1] for each in measured.played)
    whole = sum(sum(each.seconds) for each in measured.played)
    rewards = [each.reward for each in measured.played]
    resolved = sum(reward.total for reward in rewards if isinstance(reward, Scored))
    invalid = sum(not isinstance(reward, Scored) for reward in rewards)
    by_tool: dict[str, list[float]] = {}
    for record in records:
        by_tool.setdefault(record.call.name, []).append(record.seconds)
    return [
        f"{len(rewards)} episodes at once: {resolved:.0f} resolved, {invalid} invalid",
        f"{len(records)} tool calls in {measured.wall_s:.1f} s: {len(records) / measured.wall_s:.1f} a second; "
        f"{1e3 * measured.cpu_s / len(records):.0f} processor ms a call, grades included",
        f"of the episodes' time {in_tools / whole:.0%} is in tools, {in_grades / whole:.0%} in grades",
        f"decrease of available memory {measured.taken_bytes / (1 << 30):.2f} GiB, but",
        *(f"  {name}: {len(times)} calls, {sum(times) / len(times):.3f} s each" for name, times in by_tool.items()),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", help="JSONL of instances")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--policy", default="oracle", choices=("oracle", "naive", "random"))
    parser.add_argument("--protocol", default="tools", choices=("tools", "mini"))
    parser.add_argument("--slots", type=int, default=2, help="runs of tests at a time")
    arguments = parser.parse_args()
    before = count_left()
    family = Swe(
        instances=arguments.instances,
        protocol=arguments.protocol,
        tool_timeout_s=3600.0,
        sandbox=f"{__name__}:build_sandbox",
        sandbox_args={"num_slots": arguments.slots},
    )
    for line in show(measure(family, arguments.policy, arguments.episodes)):
        print(line, flush=True)
    del family  # closes the sandbox
    gc.collect()
    after = count_left()
    print(f"left behind: { ({name: after[name] - before[name] for name in after}) }")


if __name__ == "__main__":
    main()
