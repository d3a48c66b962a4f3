"""Compares the sandbox with its goals: `python benchmarks/sandbox.py [--rounds 5] [--quick]` prints the JSON of
`turnwise sandbox bench`, then a table of goals reached and missed. Run it on an idle machine; the report contains the
load before the start."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

from turnwise_sandbox.benchmark import run_benchmark

Row = tuple[str, float, str, float, bool]
"""Name, measured value, "at least" or "at most", goal, whether the goal is reached."""


def to_rows(measured: dict[str, Any]) -> Iterator[Row]:
    """One row per goal."""

    def at_least(name: str, value: float, goal: float) -> Row:
        return name, value, "at least", goal, value >= goal

    def at_most(name: str, value: float, goal: float) -> Row:
        return name, value, "at most", goal, value <= goal

    ratios = measured["ratios"]
    for versus in ("slot_vs_subprocess", "strict_vs_subprocess"):
        for work, row in ratios[versus].items():
            yield at_least(
                f"{versus.replace('_', ' ')}, {work} (a bare fork: {row['limit']})", row["ratio"], row["goal"]
            )
    if "slot_vs_bubblewrap" in ratios:
        yield at_least("slot vs bubblewrap, trivial", **_named(ratios["slot_vs_bubblewrap"]["trivial"]))
    yield at_most(
        "slot, trivial, one after the other, elapsed: 99th percentile over median", **_named(measured["tail"])
    )
    yield at_most("slot vs no isolation, trivial", **_named(ratios["isolation_overhead"]["trivial"]))
    if "ratio" in measured["unprivileged"]:
        yield at_most("a plain user vs root", **_named(measured["unprivileged"]))
    if "ratio" in measured["scaling"]:
        yield at_least("two processors vs one", **_named(measured["scaling"]))
    for name, row in measured["tests"].items():
        yield at_least(f"{name} vs subprocess", **_named(row))
    sessions, goals = measured["sessions"], measured["sessions"]["goals"]
    start_ms = measured["execution"]["trivial"]["subprocess"]["wall_p50_ms"]
    for key in ("create_p50_ms", "cell_p50_ms", "cell_p99_ms", "bash_p50_ms", "memory_mb", "live_mb_each"):
        if sessions[key] is not None:
            note = f" (python -c here: {start_ms} ms)" if key == "create_p50_ms" else ""
            note = f", {sessions['num_live']} recently alive" if key == "live_mb_each" else note
            yield at_most(f"session {key}{note}", sessions[key], goals[key.replace("create_p50", "create")])
    ends = measured["ends"]
    for name, value in ends["late_ms"].items():
        yield at_most(f"wall limit late, {name}, ms", value, ends["late_goal_ms"])
    yield at_most("1 GB of output ends, ms", ends["gigabyte_of_output_ms"], ends["gigabyte_of_output_goal_ms"])
    for role, value in ends["gone_ms"].items():
        yield at_most(f"nothing left of a killed {role}, ms", value, ends["gone_goal_ms"])


def _named(row: dict[str, Any]) -> dict[str, float]:
    return {"value": row["ratio"], "goal": row["goal"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    measured = asyncio.run(run_benchmark(rounds=arguments.rounds, quick=arguments.quick))
    rows = list(to_rows(measured))
    sys.stdout.write(json.dumps(measured, indent=1) + "\n")
    for name, value, bound, goal, reached in rows:
        sys.stdout.write(f"{'yes' if reached else 'NO ':3}  {value:>9}  {bound} {goal:<6} {name}\n")
    sys.stdout.write(
        f"{sum(row[-1] for row in rows)} of {len(rows)} goals reached; load before: {measured['load_before']}\n"
    )


if __name__ == "__main__":
    main()
