"""The start of a run: what can be refused before a step is taken, in one order for a run and its rehearsal.

The parity gate comes later: it samples, after the warm-up and before the first RL step."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwise.building.checks import check_recipe
from turnwise.building.families import build_family
from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.learners import build_learner
from turnwise.building.resolved import Resolved
from turnwise.building.trainer import build_trainer
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError, EnvironmentFault, StoreError, boundary
from turnwise.core.prompts import open_prompt
from turnwise.core.protocols import (
    CheckedEngine,
    EnvironmentFamily,
    Learner,
    Opening,
    RememberingTrainer,
    Trainer,
    WeightSync,
)
from turnwise.core.types import Invalid, Task, ToolSpec
from turnwise.curriculum.table import find_sampler
from turnwise.environments.draws import LeftOut, name_task, try_task
from turnwise.environments.mixture import list_families
from turnwise.forecast.memory import plan_memory
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.rendering.tags import FORMATS
from turnwise.rollout.meter import MeteredEngine
from turnwise.runs.annotators import build_annotate
from turnwise.runs.branches import with_branches
from turnwise.runs.build import System, check_openings, fit_to_machine
from turnwise.runs.documents import Library, load_library
from turnwise.runs.heldout import HeldOutSet, list_sets
from turnwise.runs.judges import check_judges
from turnwise.runs.openings import open_first, open_task, open_tasks
from turnwise.runs.own_conversations import Lessons, load_lessons
from turnwise.runs.roles import check_servers, keeps_past
from turnwise.runs.sft import demonstrate, first_rl_task
from turnwise.runs.weights import build_weight_sync

MAX_COMPARED, COMPARE_S = 1000, 2.0
"""Most tasks that are made at a start to see whether they differ, and seconds after which no further one is."""

Check = tuple[str, str]
"""What was checked, and what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The objects of a training run besides its folder."""

    system: System
    trainer: TrainerThread
    learners: Mapping[str, Learner]
    """By name; the first has none."""
    sync: WeightSync
    lessons: Lessons | None = None
    """Conversations of the user's own; None where the warm-up is over or has demonstrations."""
    library: Library | None = None
    """Documents of continual pre-training; None where that is over or the recipe has none."""

    async def close(self) -> None:
        """End the trainer's thread and the engine."""
        try:
            self.trainer.close()
        finally:
            await self.system.close()


def build_parts(
    system: System,
    *,
    trainer: Trainer | None = None,
    others: Mapping[str, RememberingTrainer] | None = None,
    sync: WeightSync | None = None,
    warms_up: bool = True,
) -> Parts:
    """Build what trains. `trainer`, `others` (of further learners, by name) and `sync` None: those of the recipe.
    `warms_up` says that continual pre-training or a warm-up is still to come, if the recipe has one.

    Raises ConfigError naming what does not fit, DataError for a row of `cpt.path`, `sft.path` or `sft.heldout_path`."""
    config, resolved = system.config, system.resolved
    lessons = load_lessons(config, system.renderer, system.tokenizer) if warms_up else None
    library = load_library(config, system.family, system.renderer, system.tokenizer) if warms_up else None
    trainer = trainer or build_trainer(resolved, system.model, system.tokenizer, system.host)
    if others is None:
        others = {
            name: build_trainer(resolved, other.model, system.tokenizer, system.host)
            for name, other in system.others.items()
        }
    return Parts(
        system=system,
        trainer=TrainerThread(trainer, num_threads=config.train.num_threads, others=others),
        learners={name: build_learner(resolved) for name in ("", *system.others)},
        sync=sync or build_weight_sync(system),
        lessons=lessons,
        library=library,
    )


def prepare_new(config: RunConfig) -> Resolved:
    """What the recipe of a new run means, fitted to this machine: methods, device, memory, and the disk under
    `run.output`.

    Raises ConfigError or StoreError."""
    resolved = fit_to_machine(check_recipe(config))
    check_disk(resolved)
    return resolved


def check_disk(resolved: Resolved) -> Check:
    """Check that a folder can be made in `run.output`, and that the run's checkpoints are predicted to fit there.

    Raises StoreError naming the folder and the remedy."""
    config = resolved.config
    output = Path(config.run.output).absolute()
    folder = next(path for path in (output, *output.parents) if path.exists())
    if not folder.is_dir():
        raise StoreError(f"run.output={config.run.output!r}: {folder} is not a folder; change run.output")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"run.output={config.run.output!r}: {folder} is not writable; change run.output")
    free, memory = shutil.disk_usage(folder).free, plan_memory(read_forecast_settings(resolved))
    if memory is None:
        return "disk", f"{format_size(free)} free at {folder}"
    # Weights and optimizer moments; the first, those that are kept, and the one being written.
    waiting = 2 * config.evaluate.num_workers  # an evaluation beside training keeps the checkpoint of its step
    needed = memory.checkpoint * (_count_kept(config) + config.train.keep_best + waiting + 2)
    if needed > free:
        raise StoreError(
            f"run.output={config.run.output!r} has {format_size(free)} free, but the checkpoints of this run need "
            f"{format_size(needed)}; free disk space, change run.output, lower train.keep_checkpoints, or raise "
            "train.checkpoint_every"
        )
    return "disk", f"checkpoints take at most {format_size(needed)} of {format_size(free)} free at {folder}"


def _count_kept(config: RunConfig) -> int:
    """Checkpoints kept besides the first: the latest ones, or all where the run plays against its past."""
    train = config.train
    return train.steps // train.checkpoint_every if keeps_past(config) else train.keep_checkpoints


async def check_start(parts: Parts) -> list[Check]:
    """Check what a run needs from its environment: openings, tools, tasks, demonstrations, controls, annotators.

    Returns what was seen. Raises ConfigError, DataError, RenderError, EngineError or EnvironmentFault naming what does
    not fit, with the remedy.
    """
    system, config = parts.system, parts.system.config
    checks = [("model", system.model_note)]
    checks += [await _check_opening(system, family) for family in list_families(system.family)]
    await check_openings(system)
    checks += [(f"role {role}", "its server answers") for role in await check_servers(system.policies)]
    checks += [(f"judge {name}", text) for name, text in (await check_judges(system.judges, config.judges)).items()]
    checks.append(_check_training_tasks(system))
    if parts.library is not None:
        checks.append(("documents", parts.library.note))
    if parts.lessons is not None:
        checks += [("conversations", note) for note in parts.lessons.notes]
    elif config.sft.steps and not config.sft.path:
        checks.append(await _check_demonstration(system))
    if config.evaluate.tasks:
        index, first, opening = await open_first(system.family, "heldout")
        name = name_task(system.family, "heldout", index)
        checks.append(("held-out tasks", _describe_opening(system, opening, name)))
        for control, changes in config.evaluate.controls.items() if config.train.steps else ():
            with boundary(ConfigError, f"evaluate.controls.{control}"):
                opening = await open_task(build_family(config, changes), first)
            checks.append((f"control {control}", _describe_opening(system, opening, name)))
        checks += [await _check_set(on) for on in list_sets(system)[1:]]
    with_branches(system, system.worker("train"))
    annotated = "with" if build_annotate(system, parts.trainer) else "without"
    if config.train.steps and system.resolved.algorithm.has_credit:
        checks.append(("credit and loss", f"{config.credit.method} {annotated} annotators, {config.loss.method}"))
    return checks


async def _check_set(on: HeldOutSet) -> Check:
    """Check that a further set of held-out tasks has tasks that the policy can be given."""
    if on.first:
        return f"set {on.name}", f"{len(on.draw().draws)} held-out tasks from number {on.first} on"
    with boundary(ConfigError, f"evaluate.sets.{on.name}"):
        index, _, opening = await open_first(on.system.family, "heldout")
        if on.system.config.renderer.kind == "tags":
            check_tag_tools(on.system.config.renderer.format, opening.tools)
        name = name_task(on.system.family, "heldout", index)
        return f"set {on.name}", _describe_opening(on.system, opening, name)


async def check_engines(system: System) -> None:
    """Check that engines of other programs sample their models. Raises EngineError with the reason."""
    if system.rollouts is None:
        for metered in (system.engine, *(other.engine for other in system.others.values())):
            engine = metered.engine if isinstance(metered, MeteredEngine) else metered
            if isinstance(engine, CheckedEngine):
                await engine.check()


async def _check_opening(system: System, family: EnvironmentFamily) -> Check:
    """Check that the family's first task opens, that tags can call its tools, and that there is room for a reply.

    Where there is no room, one of the next few tasks will do: single rows may be too long.
    """
    config, problem = system.config, None
    async for index, task, opening in open_tasks(family, "train"):
        if config.renderer.kind == "tags":
            check_tag_tools(config.renderer.format, opening.tools)
        try:
            text = _describe_opening(system, opening, name_task(family, "train", index))
            return f"opening of {task.environment}", text
        except ConfigError as error:
            problem = problem or error
    assert problem is not None  # open_tasks raises where it yields none
    raise problem


def check_tag_tools(format_name: str, tools: tuple[ToolSpec, ...]) -> None:
    """Raise ConfigError for a tool that the tags of `renderer.format` cannot call, naming the renderers that can."""
    tags = FORMATS[format_name]
    for tool in tools:
        names, needed = tool.properties, tool.required
        if tool.name != tags.tool or tags.argument not in names or set(needed) - {tags.argument}:
            raise ConfigError(
                f"renderer.kind='tags' with renderer.format={format_name!r} can call only "
                f"{tags.tool}({tags.argument}), but the environment has {tool.name}({', '.join(names)}); use "
                "renderer.kind='calls' for a randomly initialized model, or 'chat' for a checkpoint"
            )


def _describe_opening(system: System, opening: Opening, name: str) -> str:
    """Size and tools of an opening. Raises ConfigError if it leaves no room for a reply."""
    prompt = open_prompt(system.renderer, opening.messages, opening.tools)
    count, most = len(prompt.token_ids), system.config.rollout.max_tokens
    if count >= most:
        raise ConfigError(
            f"the opening of {name} has {count} tokens and leaves no room for a reply within "
            f"rollout.max_tokens={most}; shorten the task, or raise rollout.max_tokens and engine.max_context"
        )
    tools = ", ".join(tool.name for tool in opening.tools) or "none"
    return f"{count} of at most {most} tokens, tools: {tools}"


def _check_training_tasks(system: System) -> Check:
    """Check that the training split has a task for every demonstration and every step or, where a sampler draws tasks
    again, for all that are played at once."""
    config = system.config
    tasks_per_step, draws_again = config.rollout.tasks_per_step, find_sampler(config.curriculum.sampler).build
    times, what = config.train.steps, "train.steps"
    if draws_again and times:
        dynamic = config.rollout.dynamic_sampling
        times = max(1 + config.schedule.max_staleness, dynamic.max_batches if dynamic.metric else 1)
        what = "what may be played at once, 1 + schedule.max_staleness or rollout.dynamic_sampling.max_batches"
    num_tasks = first_rl_task(config) + times * tasks_per_step
    if num_tasks:
        problem = (
            f"the training split has fewer than the {num_tasks} tasks of this recipe ({first_rl_task(config)} "
            f"demonstrations, and {what}={times} times rollout.tasks_per_step={tasks_per_step}); lower "
            f"sft.num_demonstrations, {what.rpartition(', ')[2]} or rollout.tasks_per_step, or add tasks to the "
            "environment"
        )
        try:
            try_task(system.family, "train", num_tasks - 1)
        except IndexError as end:
            raise DataError(f"{problem} ({end})") from None
    return "training tasks", f"{num_tasks} needed, {describe_distinct(system.family, num_tasks)}"


def describe_distinct(family: EnvironmentFamily, num_tasks: int) -> str:
    """How many of the needed training tasks differ: a split may begin its rows again when they are used up.

    One that cannot be made is left out here and named where it is drawn."""
    tasks: list[Task | LeftOut] = []
    deadline = time.monotonic() + COMPARE_S
    while len(tasks) < min(num_tasks, MAX_COMPARED) and time.monotonic() < deadline:
        tasks.append(try_task(family, "train", len(tasks)))
    ids = [task.id for task in tasks if isinstance(task, Task)]
    of = "" if len(tasks) == num_tasks else f"of the first {len(tasks):,} "
    if len(set(ids)) < len(ids):
        return f"{of}{len(set(ids))} different ones, which come again"
    return f"{of}all there and different"


async def _check_demonstration(system: System) -> Check:
    """Check that the policy of the warm-up exists, and that the renderer can write its first demonstration."""
    config = system.config
    policy = system.family.policy(config.sft.policy)
    with boundary(EnvironmentFault, f"sft.policy={config.sft.policy!r} on the first training task"):
        index, task, _ = await open_first(system.family)
        episode = await demonstrate(system, policy, index, task)
    num_replies = sum(len(trajectory.turns) for trajectory in episode.trajectories)
    reward = episode.reward
    problem = f"; its reward is Invalid: {reward.reason}" if isinstance(reward, Invalid) else ""
    return "demonstrations", f"{config.sft.policy!r} ends the first task after {num_replies} replies{problem}"


def format_size(num_bytes: int) -> str:
    """Bytes for people."""
    return f"{num_bytes / 2**30:,.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:,.1f} MiB"
