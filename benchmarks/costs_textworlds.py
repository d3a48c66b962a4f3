"""Print what ALFWorld, ScienceWorld and Crafter cost, as JSON on standard output: openings, steps and lists of actions
per processor second, Java's seconds included, and the memory they take. A package that is missing has no entry.

    python benchmarks/costs_textworlds.py [SECONDS]

Random actions of the world's own list, ended after 30. Steps exclude drawing the action, which in ScienceWorld is
slower than the step. Memory is of this process after the measurement, and of Java for ScienceWorld.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from turnwise.core.errors import ToolFailure
from turnwise_adapters.alfworld.family import Alfworld
from turnwise_adapters.crafter.family import Crafter
from turnwise_adapters.game_family import GameFamily
from turnwise_adapters.scienceworld.family import ScienceWorld

FAMILIES: dict[str, tuple[str, Callable[[], GameFamily]]] = {
    "crafter_text": ("crafter", lambda: Crafter(area=64)),
    "crafter_pictures": ("crafter", lambda: Crafter(area=64, pictures=True)),
    "alfworld": ("alfworld", Alfworld),
    "scienceworld": ("scienceworld", lambda: ScienceWorld(tasks={"find-non-living-thing": 1.0}, num_servers=1)),
}
"""What is measured, by name: the package and the family."""


def measure(seconds: float) -> dict[str, Any]:
    """Return costs by name; each world takes about `seconds`."""
    return {name: _play(build(), seconds) for name, (package, build) in FAMILIES.items() if find_spec(package)}


def _play(family: GameFamily, seconds: float) -> dict[str, float]:
    steps = openings = 0
    opening_s = step_s = choosing_s = 0.0
    pids = family.servers.list_pids if isinstance(family, ScienceWorld) else tuple

    def spend() -> float:
        return time.process_time() + sum(map(_read_seconds, pids()))

    random, started = Random(0), time.perf_counter()
    family.build_game().open(0)  # starts Java, reads tables
    while time.perf_counter() - started < seconds or not openings:
        game = family.build_game()
        begun = spend()
        game.open(2 * openings)
        opening_s += spend() - begun
        openings += 1
        for _ in range(30):
            begun = spend()
            action = game.random_action(random)
            chosen = spend()
            try:
                done = game.step(action).done
                game.pictures()
            except ToolFailure:
                done = False
            choosing_s += chosen - begun
            step_s += spend() - chosen
            steps += 1
            if done or time.perf_counter() - started > seconds:
                break
        game.close()
    costs = {
        "openings_per_cpu_s": openings / opening_s,
        "steps_per_cpu_s": steps / step_s,
        "lists_of_actions_per_cpu_s": steps / max(choosing_s, 1e-3),
        "memory_mb": _read_memory("self"),
    }
    if isinstance(family, ScienceWorld):
        costs["java_memory_mb"] = sum(_read_memory(str(pid)) for pid in pids())
        family.servers.close()
    return {name: round(value, 1) for name, value in costs.items()}


def _read_seconds(pid: int) -> float:
    """Return the processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_memory(pid: str) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def main() -> None:
    print(json.dumps(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0), indent=1))


if __name__ == "__main__":
    main()
