"""Count the files of a run of many small steps: `python benchmarks/run_files.py --steps 3000`.

The run is that of tests/pipeline_world.py: everything is real but the engine, the trainer and the environment, which
take milliseconds. Prints JSON: the number of files, and how many there would be without packs. Exits 1 if the audit
finds a breach."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from pipeline_world import Pace, World, WorldFamily, make_config

from turnwise.store.packs import list_members


def main() -> None:
    """Train, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--tasks-per-step", type=int, default=4)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="run_files") as folder:
        config = make_config(
            train={"steps": options.steps, "checkpoint_every": 20},
            rollout={"tasks_per_step": options.tasks_per_step, "group_size": 2},
        )
        family = WorldFamily(num_tasks=options.steps * options.tasks_per_step)
        quick = Pace(token_s=0.0, environment_s=0.0, step_s=0.0)
        world = World(path=Path(folder) / "run", config=config, pace=quick, family=family)
        world.live()
        files = [path for path in world.path.rglob("*") if path.is_file()]
        packs = [path for path in files if path.suffix == ".zip"]
        packed = sum(len(list_members(path)) for path in packs)
        breaches = [str(breach) for breach in world.audit().breaches]
    counts = {"files": len(files), "packs": len(packs), "files_without_packs": len(files) - len(packs) + packed}
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"steps": options.steps, **counts, "seconds": seconds, "breaches": breaches}, indent=1))
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
