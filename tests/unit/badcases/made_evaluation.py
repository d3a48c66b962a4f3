"""A run folder with one evaluation of planted attempts, made without training."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from turnwise.building.families import build_family
from turnwise.config.load import dump_resolved, load_config
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Draw, Trajectory, TrajectoryGroup
from turnwise.evaluation.summary import summarise
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_groups

ROOT = Path(__file__).parents[3]
TINY = ROOT / "recipes" / "search_r1" / "tiny.toml"


def make_run(folder: Path, *overrides: str) -> tuple[RunFolder, EnvironmentFamily]:
    """A run folder with a recipe and nothing else."""
    config = load_config([TINY], list(overrides))
    run = RunFolder.create(folder)
    run.write_json("config.json", dump_resolved(config))
    return run, build_family(config)


def plant(family: EnvironmentFamily, indices: tuple[int, ...], names: tuple[str, ...]) -> list[TrajectoryGroup]:
    """One attempt at each task, with the first of these faults that can be planted in it."""
    sys.path.insert(0, str(ROOT / "benchmarks"))  # a benchmark imports its neighbours
    from planted.script import play
    from planted.search import SearchFaults

    planter = SearchFaults(family)
    groups = []
    for index in indices:
        by_name = {planted.name: planted for planted in planter.plant(index)}
        planted = next(by_name[name] for name in names if name in by_name)
        attempt: Trajectory = asyncio.run(play(planted))
        groups.append(TrajectoryGroup(draw=Draw(index=index, task=planted.task), trajectories=(attempt,)))
    return groups


def store(run: RunFolder, name: str, label: str, step: int, groups: list[TrajectoryGroup]) -> None:
    """Write an evaluation as a run does."""
    save_groups(run.path / "evaluations", name, groups, decode=lambda ids: "x " * len(ids), with_pieces=True)
    summary: dict[str, Any] = summarise(groups, name=name, label=label, step=step).to_json()
    run.write_json(f"evaluations/{name}.summary.json", summary)
