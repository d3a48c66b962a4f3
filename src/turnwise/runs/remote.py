"""The rollout processes of a run, and where they live."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.load import dump_resolved
from turnwise.config.roles import list_learners
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.programs import start_program
from turnwise.hosts.host import Host, Program, import_path
from turnwise.hosts.local import LocalHost
from turnwise.hosts.ray_cluster import RayCluster
from turnwise.judging.limits import LimitedJudge
from turnwise.pictures.store import PictureStore
from turnwise.remote.pool import RolloutPool
from turnwise.runs.judges import list_distant, list_near

START_S, SILENCE_S = 600.0, 600.0
"""Most seconds from the start of a process to its first word, and of silence of one that has something to do."""


def build_host(config: RunConfig) -> Host:
    """Where the recipe's processes live. Raises ConfigError where there is no cluster, or none to run on it."""
    scale, num_workers = config.scale, config.rollout.num_workers
    if not scale.ray:
        return LocalHost()
    num_engines = find_engine_kind(config.engine.kind).footprint(config.engine.options).num_guests
    ranks = config.train.ranks
    num_ranks = ranks * (1 + len(list_learners(config.roles))) if ranks > 1 else 0
    num_actors = (num_workers or num_engines) + num_ranks
    if not num_actors:
        raise ConfigError(
            f"scale.ray={scale.ray!r} with rollout.num_workers=0, engine.kind={config.engine.kind!r} and "
            f"train.ranks={ranks}: nothing would run on the cluster; set rollout.num_workers or train.ranks, or use "
            "engine.kind='vllm'"
        )
    return RayCluster(scale.ray, num_actors=num_actors, cpus=scale.cpus, strategy=scale.strategy)


def build_rollouts(
    config: RunConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    host: Host,
    judges: Mapping[str, LimitedJudge],
    pictures: PictureStore,
) -> RolloutPool:
    """The processes on `host` that play the trajectories of a recipe, with the weights of `model`; they ask the run's
    `judges`, and share its `pictures` on a disk that all of them see.

    Raises ConfigError for roles whose weights they do not get.
    """
    others = [role for role, text in config.roles.items() if text.startswith("past:")] + list_learners(config.roles)
    if others:
        raise ConfigError(
            f"rollout.num_workers={config.rollout.num_workers} with {', '.join(map(repr, others))} in roles: rollout "
            "processes receive the weights of only one learner and no past snapshots; use rollout.num_workers=0"
        )
    num_workers = config.rollout.num_workers
    share = -(-config.engine.max_concurrency // num_workers)
    near = list_near(judges)
    config = config.model_copy(update={"judges": {name: each for name, each in config.judges.items() if name in near}})
    settings = {
        "config": _cut_config(config, share),
        "distant_judges": list_distant(judges),
        "pictures": None if pictures.folder is None else str(pictures.folder.absolute()),
    }
    threads = {"OMP_NUM_THREADS": str(config.engine.num_threads)} if config.engine.num_threads else {}

    async def start(name: str, folder: Path, version: int) -> Link:
        return await start_program(
            host,
            Program(
                name=name,
                arguments=(sys.executable, "-m", "turnwise.runs.rollout_process"),
                environment={**import_path(), **threads},
                log=pool.folder / f"{name.replace(' ', '-')}.log",
            ),
            {**settings, "version": version},
            folders={"folder": folder, "tokenizer": pool.folder / "tokenizer"},
            start_s=START_S,
            silence_s=SILENCE_S,
        )

    pool = RolloutPool(model, start, num_workers=num_workers, max_open=share, pictures=pictures)
    tokenizer.save_pretrained(pool.folder / "tokenizer")
    return pool


def _cut_config(config: RunConfig, share: int) -> Mapping[str, Any]:
    """The recipe of one process."""
    table = dump_resolved(config)
    table["rollout"]["num_workers"] = 0
    table["engine"]["max_concurrency"] = share
    table["scale"] = {}
    return table
