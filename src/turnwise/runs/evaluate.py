"""Held-out evaluation of a policy: greedy by default, with intervals, and every trajectory kept."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.config.load import list_moves, load_resolved
from turnwise.config.resolve import check_sections
from turnwise.config.run import RunConfig
from turnwise.core.errors import DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Draw, TrajectoryGroup
from turnwise.environments.draws import LeftOut, check_left_out, name_task, try_task
from turnwise.evaluation.summary import Summary, summarise
from turnwise.pictures.store import PictureStore, open_pictures
from turnwise.rollout.limits import is_too_long
from turnwise.runs.agents import NamedAgent, play_by
from turnwise.runs.build import System, build_system
from turnwise.runs.data_files import check_data_files
from turnwise.runs.until_sure import UntilSure, build_until
from turnwise.store.chosen_checkpoints import find_checkpoint_of
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The tasks of an evaluation."""

    draws: list[Draw]
    """Different tasks, at least one; their index is that of the split."""
    notes: list[str]
    """Which tasks of the split are not among them, in one line each."""


def draw_heldout(family: EnvironmentFamily, count: int, *, max_left_out: float = 0.0) -> HeldOut:
    """The first `count` held-out tasks, fewer if the data set ends, without copies and without those that cannot be
    made.

    A copy is no further evidence. Raises DataError if there is no task, or naming one if more than a share of
    `max_left_out` cannot be made.
    """
    draws: dict[str, Draw] = {}
    left_out: list[LeftOut] = []
    copies: list[tuple[int, int]] = []
    for index in range(count):
        try:
            task = try_task(family, "heldout", index)
        except IndexError:
            break
        if isinstance(task, LeftOut):
            left_out.append(task)
            check_left_out(len(left_out), count, max_left_out, task.why)
        elif task.id in draws:
            copies.append((index, draws[task.id].index))
        else:
            draws[task.id] = Draw(index=index, task=task)
    if not draws:
        cause = f" ({left_out[0].why})" if left_out else ""
        raise DataError(
            f"the held-out split is empty{cause}; set environment.args.heldout_path to a file with at least one "
            "question"
        )
    notes = [f"left out: {each.why}" for each in left_out]
    if copies:
        copy, first = (name_task(family, "heldout", index) for index in copies[0])
        notes.append(
            f"{len(draws):,} different tasks are evaluated; left out as copies of earlier ones: {len(copies):,} "
            f"({copy} equals {first})"
        )
    return HeldOut(draws=[*draws.values()], notes=notes)


def heldout_draws(family: EnvironmentFamily, count: int) -> list[Draw]:
    """`draw_heldout` without its notes, where every task must be made."""
    return draw_heldout(family, count).draws


def name_label(config: RunConfig, step: int) -> str:
    """What people call a run's own evaluation after RL step `step`."""
    if step == 0:
        return "after SFT" if config.sft.steps else "after CPT" if config.cpt.steps else "before training"
    return "after RL" if step == config.train.steps else f"step {step}"


async def evaluate_policy(
    system: System,
    folder: RunFolder,
    *,
    name: str,
    label: str,
    step: int,
    num_tasks: int,
    changes: dict[str, Any] | None = None,
    agent: NamedAgent | None = None,
    until: UntilSure | None = None,
    tell: Callable[[str], None] | None = None,
) -> Summary:
    """Evaluate on held-out tasks and write summary and trajectories under `evaluations/<name>`.

    `changes` are laid over `environment.args` (search off, documents shuffled) with the same tasks. An `agent` plays
    them; None: the environments themselves ask. `until` stops when its answer is known; None plays every task. `tell`
    hears which tasks are not evaluated; None leaves that to the run's events.
    """
    say = tell or (lambda text: folder.append_event("evaluation", text))
    worker = system.worker("evaluate", changes)
    if agent is not None:
        worker = play_by(worker, agent.agent)
    heldout = draw_heldout(system.family, num_tasks, max_left_out=system.config.environment.max_left_out)
    play = partial(worker.run_groups, group_size=system.config.evaluate.samples)
    decision = None
    if until is None:
        groups = await play(heldout.draws)
    else:
        groups, decision = await until.play(play, heldout.draws)
    too_long = [group for group in groups if is_too_long(group)]
    for text in [*heldout.notes, *(_say_too_long(system.family, group) for group in too_long)]:
        say(f"{name}: {text}")
    summary = summarise(groups, name=name, label=label, step=step, decision=decision)
    decode = system.tokenizer.decode
    save_groups(folder.path / "evaluations", name, groups, decode=decode, with_pieces=True)
    folder.write_json(f"evaluations/{name}.summary.json", summary.to_json())
    if too_long:
        example = _say_too_long(system.family, too_long[-1])
        check_left_out(len(too_long), len(groups), system.config.environment.max_left_out, example)
    worker.failure.check(group for group in groups if not is_too_long(group))
    return summary


def _say_too_long(family: EnvironmentFamily, group: TrajectoryGroup) -> str:
    return f"not played: {name_task(family, 'heldout', group.draw.index)}: {group.trajectories[0].error}"


def load_run(run: Path, *, device: str | None = None, ranks: int | None = None) -> tuple[RunFolder, RunConfig]:
    """A run folder and its resolved config; `device` and `ranks` replace the `model.device` and `train.ranks` it was
    made with, None keeps them."""
    folder = RunFolder.open(run)
    return folder, load_resolved(folder.path / "config.json", list_moves(device=device, ranks=ranks))


def load_trained_system(
    run: Path, step: int | str | None = None, *, device: str | None = None, pictures: PictureStore | None = None
) -> tuple[RunFolder, System, int]:
    """A trained policy ready to answer: the checkpoint of `step`, "best" or "latest" (None: the latest), on `device`
    (None: the run's). What it is shown is kept in `pictures` (None: the run's).

    Raises CheckpointError if there is none or it is damaged, ConfigError if the device is unavailable.
    """
    folder, config = load_run(run, device=device)
    checkpoint = find_checkpoint_of(folder.path, step)
    system = build_system(config, checkpoint, pictures=pictures or open_pictures(folder.path))
    if system.past is not None:
        system.past.run = folder.path
    return folder, system, int(checkpoint.name.rpartition("_")[2])


def _name_changes(changes: dict[str, Any]) -> str:
    """Changes as the end of a file's name: of a long value, or one with a folder's separator, what a name can hold."""
    text = "".join(f"_{key}_{value}" for key, value in sorted(changes.items()))
    plain = re.sub(r"[^\w.=+-]+", "-", text)[:80]
    return plain if plain == text else f"{plain}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def run_evaluate(
    run: Path,
    *,
    tasks: int | None,
    changes: dict[str, Any],
    step: int | str | None,
    device: str | None = None,
    samples: int | None = None,
    temperature: float | None = None,
    agent: NamedAgent | None = None,
    until_sure: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Summary:
    """Evaluate a finished run's checkpoint again: on another number of tasks, with other samples of each, with changed
    `environment.args`, played by an agent, or on another device. None keeps what the recipe says.

    `until_sure` is a share of success, or what `load_results` takes: it stops when success is known to be above or
    below. Files and label are named after what differs from the recipe, so that each way to evaluate keeps its results.
    `tell` hears what a reader of the results should know of their tasks. Raises DataError where a data file is another
    than the run's, or where there is no held-out task.
    """
    until = None if until_sure is None else build_until(until_sure)
    folder, system, at = load_trained_system(run, step, device=device)
    check_data_files(folder.path, system.family)
    for _, text in system.notes:
        tell(text)
    given = {"tasks": tasks, "samples": samples, "temperature": temperature}
    recipe = system.config.evaluate
    others = {name: value for name, value in given.items() if value not in (None, getattr(recipe, name))}
    config = check_sections(system.config.model_copy(update={"evaluate": recipe.model_copy(update=others)}))
    if not config.evaluate.tasks:
        raise DataError(f"the recipe of {run} has evaluate.tasks = 0; say how many held-out tasks with --tasks")
    system = replace(system, config=config)
    suffix = _name_changes(changes)
    suffix += "".join(f"_{name}{value:g}" for name, value in others.items())
    if agent is not None:
        suffix += _name_changes({"agent": agent.name})
    if until_sure is not None:
        suffix += _name_changes({"until": until_sure})
    named = [*sorted(changes.items()), *others.items(), *([] if agent is None else [("agent", agent.name)])]
    named += [] if until is None else [("until sure of", until.against)]
    label = ", ".join(f"{key}={value}" for key, value in named) or f"checkpoint of step {at}"

    def say(text: str) -> None:
        folder.append_event("evaluation", text)
        tell(text)

    async def evaluate() -> Summary:
        try:
            return await evaluate_policy(
                system,
                folder,
                name=f"again_{at:06d}{suffix}",
                label=label,
                step=at,
                num_tasks=config.evaluate.tasks,
                changes=changes or None,
                agent=agent,
                until=until,
                tell=say,
            )
        finally:
            await system.close()

    return asyncio.run(evaluate())
