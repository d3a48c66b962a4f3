"""Stored trajectories in the formats of others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from turnwise.building.families import build_family
from turnwise.config.evaluate import SELECTION
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.checked import to_asking
from turnwise.core.errors import DataError, EnvironmentFault, StoreError, boundary
from turnwise.core.messages import ImagePart, describe_part, list_images
from turnwise.core.protocols import EnvironmentFamily, Opening
from turnwise.core.types import Task, TrajectoryGroup
from turnwise.exchange.conversations import Conversation, find_total, list_conversations
from turnwise.exchange.inspect_logs import LogFacts, check_inspect, write_inspect_log
from turnwise.exchange.row_files import write_rows
from turnwise.exchange.sft_rows import to_sft_row
from turnwise.pictures.chat_parts import embed
from turnwise.pictures.store import PictureStore, open_pictures
from turnwise.runs.evaluate import load_run
from turnwise.runs.heldout import place_in
from turnwise.runs.openings import to_opening
from turnwise.store.groups import GroupStore
from turnwise.store.journal import read_journal
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups

PicturesAs = Literal["data", "paths"]
OPEN_S = 60.0
"""Seconds an environment has to open, and to close."""


def export_inspect(run: Path, folder: Path, *, names: Sequence[str]) -> list[Path]:
    """Write one `.eval` file per batch of `names` (see `list_batches`), or per batch of the run where there are none.

    Raises ConfigError without inspect-ai, DataError for an unknown name or a file that exists, StoreError for a damaged
    run folder.
    """
    check_inspect()
    stored, config = load_run(run)
    paths = []
    for name in names or list_batches(stored):
        path = folder / f"{name}.eval"
        if path.exists():
            raise DataError(f"{path} already exists; name another folder")
        groups = load_batch(stored, name)
        facts = LogFacts(
            task=name,
            run=stored.path.absolute().name,
            model=f"turnwise/{Path(config.model.path).name if config.model.path else config.run.name}",
            created=_find_time(stored, name),
            options=dump_resolved(config),
        )
        with boundary(DataError, f"cannot write {path}"):
            folder.mkdir(parents=True, exist_ok=True)
            write_inspect_log(path, list_stored(config, name, groups), facts, to_url=embed(open_pictures(stored.path)))
        paths.append(path)
    return paths


def export_sft(
    run: Path, path: Path, *, names: Sequence[str], min_reward: float | None, pictures: PicturesAs = "data"
) -> tuple[int, int]:
    """Write the conversations of some batches as rows for supervised training; returns how many, and how many were left
    out: those below `min_reward` (None keeps all) and those that could not be judged. `pictures` are written as data
    URLs ("data") or as the paths of the run's files ("paths").

    Raises as `export_inspect` does, and what `write_rows` raises.
    """
    stored, config = load_run(run)
    conversations = [
        conversation
        for name in names or list_batches(stored)
        for conversation in list_stored(config, name, load_batch(stored, name))
    ]
    kept = [each for each in conversations if _is_kept(each, min_reward)]
    if not kept:
        raise DataError(f"none of {len(conversations)} conversations has a reward of {min_reward} or more")
    store = open_pictures(stored.path)
    to_url = embed(store) if pictures == "data" else partial(_find_file, store)
    as_parts, as_text = any(list_images(each.messages) for each in kept), path.suffix == ".parquet"
    rows = [to_sft_row(each, as_text=as_text, as_parts=as_parts, to_url=to_url) for each in kept]
    write_rows(path, rows)
    return len(kept), len(conversations) - len(kept)


def _find_file(pictures: PictureStore, part: ImagePart) -> str:
    path = pictures.find_path(part.digest)
    if path is None or not path.exists():
        raise StoreError(
            f"{describe_part(part)} has no file at {path}; write data URLs with --pictures data, or restore the file"
        )
    return str(path.absolute())


def list_batches(folder: RunFolder) -> list[str]:
    """Names of what a run has: its evaluations ("heldout_000060"), then its training steps ("step_000012")."""
    evaluations = sorted(path.stem for path in (folder.path / "evaluations").glob("*.jsonl"))
    return [*evaluations, *(f"step_{step:06d}" for step in read_journal(folder.path).taken)]


def load_batch(folder: RunFolder, name: str) -> list[TrajectoryGroup]:
    """The groups of an evaluation or of a training step. Raises DataError naming what there is."""
    if name not in list_batches(folder):
        raise DataError(f"run {folder.path} has no {name!r}; it has {', '.join(list_batches(folder)) or 'nothing yet'}")
    if not name.startswith("step_"):
        return load_groups(folder.path / "evaluations", name)
    store = GroupStore(folder.path)
    return [store.load(draw) for draw in read_journal(folder.path).taken[int(name.removeprefix("step_"))]]


def _is_kept(conversation: Conversation, min_reward: float | None) -> bool:
    total = find_total(conversation.trajectory)
    return total is not None and (min_reward is None or total >= min_reward)


def list_stored(config: RunConfig, name: str, groups: Sequence[TrajectoryGroup]) -> list[Conversation]:
    """The conversations of a batch. An environment is opened for each task, since a run does not store its tools; that
    of a control has what the control changes, that of a set is the set's. Raises DataError for a family that only
    `turnwise evaluate --on` named."""
    on = re.fullmatch(r"(?:heldout|again|api)-(.+?)_\d{6,}.*", name)
    if on and on[1] != SELECTION:
        if on[1] not in config.evaluate.sets:
            raise DataError(f"{name} was played in an environment that is none of evaluate.sets; name another one")
        config = place_in(config, on[1])
    control = re.fullmatch(r"heldout_\d+_(.+)", name)
    changes = config.evaluate.controls.get(control[1]) if control else None
    tasks = {group.task.id: group.task for group in groups}
    openings = asyncio.run(_open_all(build_family(config, changes), list(tasks.values())))
    return list(list_conversations(groups, openings))


async def _open_all(family: EnvironmentFamily, tasks: Sequence[Task]) -> dict[str, Opening]:
    """Opening messages and tools by task id."""
    openings: dict[str, Opening] = {}
    for task in tasks:
        with boundary(EnvironmentFault, f"the environment of task {task.id} cannot be opened"):
            environment = to_asking(family.build_environment(task))
            try:
                async with asyncio.timeout(OPEN_S):
                    openings[task.id] = to_opening(await environment.begin(task, seed=0))
            finally:
                async with asyncio.timeout(OPEN_S):
                    await environment.close()
    return openings


def _find_time(folder: RunFolder, name: str) -> float:
    """When the batch was made: the time of its evaluation's file or of its step's metrics."""
    if not name.startswith("step_"):
        return (folder.path / "evaluations" / f"{name}.jsonl").stat().st_mtime
    rows = [row for row in folder.read_metrics() if (row["phase"], row["step"]) == ("train", int(name[5:]))]
    return float(rows[-1]["time"]) if rows else folder.path.stat().st_mtime
