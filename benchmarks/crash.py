"""Kill a training run at random moments, again and again, and audit the result: `python benchmarks/crash.py`.

A child process trains asynchronously (a scripted engine, a trainer of a few numbers, everything else as in a real run)
and is killed with SIGKILL after a random number of milliseconds; the next child continues the run, until it is done,
and the next run begins. Prints a JSON summary. Exits 1 when a child ended with an error, a trained step changed, a
finished group was sampled again or the audit found a breach.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from pipeline_world import Pace, World, make_config, make_tokenizer

RECIPES: list[dict[str, dict[str, Any]]] = [
    {"schedule": {"max_staleness": 2}},
    {"schedule": {"max_staleness": 1}, "rollout": {"dynamic_sampling": {"metric": "reward"}}},
    {"schedule": {"max_staleness": 2, "overdraw": 1, "late": "cut", "patience_s": 0.002, "min_members": 1}},
    {},
]
"""Options of the runs: asynchronous ones, and the synchronous case."""
STEPS = 12


def live_in_child(world: World, life_s: float | None) -> int:
    """Run once in a child that is killed after `life_s` (None: never). Returns its exit status, -9 if it was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            world.live()
            status = 0
        finally:  # the child ends here, whatever happened
            if status:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(status)
    if life_s is not None:
        time.sleep(life_s)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def find_breaches(world: World, sums: dict[int, Any], digests: dict[int, tuple[str, int]]) -> list[str]:
    """What a process changed that it must keep, given checksums by step, and digest and attempt by draw, from
    before."""
    problems = [f"step {step} has other weights" for step, before in sums.items() if world.sums().get(step) != before]
    for draw, (digest, attempt) in digests.items():
        record = world.journal.draws[draw]
        if (record.digest, record.attempt) != (digest, attempt):
            problems.append(f"draw {draw} had finished and was sampled again")
    return problems


def read_digests(world: World) -> dict[int, tuple[str, int]]:
    """Digest and attempt of every finished draw."""
    return {r.draw: (r.digest, r.attempt) for r in world.journal.draws.values() if r.digest is not None}


def crash_runs(
    kills: int, seed: int, folder: Path, *, audit_every: int = 20, max_life_s: float = 0.25
) -> dict[str, Any]:
    """Run in turn until `kills` children were killed; returns the figures."""
    choose, began = random.Random(seed), time.monotonic()
    make_tokenizer()
    counts: Counter[str] = Counter()
    breaches: list[str] = []
    worst_age = 0
    while counts["kills"] < kills and not breaches:
        sections = RECIPES[counts["runs"] % len(RECIPES)]
        steps = {"train": {"steps": STEPS, "checkpoint_every": choose.choice([1, 3, 5])}}
        path = folder / f"run{counts['runs']}"
        world = World(path=path, config=make_config(**steps, **sections))
        while not breaches:
            sums, digests = world.sums(), read_digests(world)
            world.pace = Pace(seed=choose.getrandbits(32), token_s=0.002, environment_s=0.006, step_s=0.02)
            life_s = choose.uniform(0, max_life_s) if counts["kills"] < kills else None
            status = live_in_child(world, life_s)
            counts["lives"] += 1
            breaches += find_breaches(world, sums, digests)
            if status == 0:
                break
            if status != -signal.SIGKILL:
                breaches.append(f"a child ended with status {status}")
            counts["kills"] += 1
            if counts["kills"] % audit_every == 0:
                counts["audits"] += 1
                breaches += [str(breach) for breach in world.audit().breaches]
        counts["runs"] += 1
        counts["audits"] += 1
        breaches += [str(breach) for breach in world.audit().breaches]
        rows = world.read_lines("ledger.jsonl") if (path / "ledger.jsonl").exists() else []
        trained = [row for row in rows if row["fate"] == "trained"]
        ages = [row["version"] - row["start_version"] for row in trained]
        bound = world.config.schedule.max_staleness
        if len(world.sums()) != STEPS:
            breaches.append(f"run {counts['runs']} trained {len(world.sums())} of {STEPS} steps")
        breaches += [f"a group trained at age {age}, the bound is {bound}" for age in ages if age > bound]
        worst_age = max([worst_age, *ages])
        counts["trained_tokens"] += sum(row["trained"] for row in trained)
        counts["sampled_tokens"] += sum(row["sampled"] for row in rows)
        counts["reopened"] += sum(
            row["kind"] == "opened" and row["attempt"] > 0 for row in world.read_lines("journal.jsonl")
        )
        if not breaches:
            shutil.rmtree(path)
    seconds = round(time.monotonic() - began, 1)
    return {**counts, "worst_age": worst_age, "seconds": seconds, "breaches": breaches, "ok": not breaches}


def main() -> None:
    """Run, print, and exit 1 on a breach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the runs are written; default: a temporary folder")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="crash"))
    summary = crash_runs(options.kills, options.seed, folder)
    print(json.dumps(summary, indent=1))
    sys.exit(0 if summary["ok"] else 1)


if __name__ == "__main__":
    main()
