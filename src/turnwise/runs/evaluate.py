"""Held-out evaluation of a policy: greedy by default, with intervals, and every trajectory kept."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.config.evaluate import SELECTION, EvaluateSection
from turnwise.config.load import change_resolved, list_moves, load_resolved
from turnwise.config.resolve import check_sections
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import TrajectoryGroup
from turnwise.environments.draws import check_left_out, name_task
from turnwise.evaluation.summary import Summary, summarise
from turnwise.pictures.store import PictureStore, open_pictures
from turnwise.rollout.limits import is_too_long
from turnwise.runs.agents import NamedAgent, play_by
from turnwise.runs.build import System, build_system
from turnwise.runs.data_files import check_data_files
from turnwise.runs.foreign import ForeignModel
from turnwise.runs.heldout import HeldOutSet, find_set
from turnwise.runs.until_sure import UntilSure, build_until
from turnwise.store.chosen_checkpoints import find_checkpoint_of
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_groups


def name_label(config: RunConfig, step: int) -> str:
    """What people call a run's own evaluation after RL step `step`."""
    if step == 0:
        return "after SFT" if config.sft.steps else "after CPT" if config.cpt.steps else "before training"
    return "after RL" if step == config.train.steps else f"step {step}"


async def evaluate_policy(
    on: HeldOutSet,
    folder: RunFolder,
    *,
    name: str,
    label: str,
    step: int,
    changes: dict[str, Any] | None = None,
    agent: NamedAgent | None = None,
    foreign: ForeignModel | None = None,
    until: UntilSure | None = None,
    tell: Callable[[str], None] | None = None,
) -> Summary:
    """Evaluate on a set of held-out tasks and write summary and trajectories under `evaluations/<name>`.

    `changes` are laid over `environment.args` (search off, documents shuffled) with the same tasks. An `agent` plays
    them, or a `foreign` model speaks for every role; None: the policy. `until` stops when its answer is known; None
    plays every task. `tell` hears which tasks are not evaluated; None leaves that to the run's events. Raises
    EnvironmentFault where too many attempts could not be scored, unless a foreign model made them: its failures are
    data.
    """
    say = tell or (lambda text: folder.append_event("evaluation", text))
    system, worker = on.system, on.worker(changes)
    if agent is not None:
        worker = play_by(worker, agent.agent)
    if foreign is not None:
        worker = replace(worker, policies=foreign.policies(system))
    heldout = on.draw()
    play, decision = partial(worker.run_groups, group_size=system.config.evaluate.samples), None
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
    more = {} if foreign is None else {"foreign": foreign.describe(groups)}
    folder.write_json(f"evaluations/{name}.summary.json", {**summary.to_json(), **more})
    if too_long:
        example = _say_too_long(system.family, too_long[-1])
        check_left_out(len(too_long), len(groups), system.config.environment.max_left_out, example)
    if foreign is None:
        worker.failure.check(group for group in groups if not is_too_long(group))
    return summary


def name_evaluation(kind: str, on: str, step: int, control: str = "") -> str:
    """The name of an evaluation's files: its kind, the set unless that is the reported one, the step, the control."""
    return f"{kind}{'-' + name_part(on) if on else ''}_{step:06d}{'_' + control if control else ''}"


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


def name_part(text: str) -> str:
    """A text as part of a file's name, without "_" before digits, which would look like a step."""
    plain = re.sub(r"[^A-Za-z0-9.+=-]+", "-", text).strip("-.")[:80]
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


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
    foreign: ForeignModel | None = None,
    on: str = "",
    until_sure: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Summary:
    """Evaluate a finished run's checkpoint again: on another number of tasks or another set, with other samples of
    each, with changed `environment.args`, played by an agent or a foreign model, or on another device. None keeps what
    the recipe says.

    `on` names a set of the recipe, or a family whose arguments `changes` then are; "" is the set that is reported.
    `until_sure` is a share of success, or what `load_results` takes: it stops when success is known to be above or
    below. Files and label are named after what differs from the recipe, so that each way to evaluate keeps its results.
    `tell` hears what a reader of the results should know of their tasks. Raises ConfigError where there is nothing to
    play, or where reported tasks chose the checkpoint, and DataError where a data file is another than the run's.
    """
    until = None if until_sure is None else build_until(until_sure)
    folder, system, at = load_trained_system(run, step, device=device)
    check_data_files(folder.path, system.family)
    for _, text in system.notes:
        tell(text)
    given = {"tasks": tasks, "samples": samples, "temperature": temperature}
    recipe = system.config.evaluate
    others = {name: value for name, value in given.items() if value not in (None, getattr(recipe, name))}
    system = replace(system, config=_change_evaluate(system.config, others))
    if foreign is not None:
        at = 0  # it has no weights of this run
    heldout = _find_heldout(system, recipe, on, tasks if "tasks" in others else None, changes)
    changes_here = changes if heldout.system.family is system.family or on in recipe.sets else {}
    suffix = _name_changes(changes) + "".join(f"_{name}{value:g}" for name, value in others.items())
    if agent is not None:
        suffix += _name_changes({"agent": agent.name})
    if foreign is not None:
        suffix = f"_{name_part(foreign.model)}{suffix}"
    if until_sure is not None:
        suffix += _name_changes({"until": until_sure})
    named = [*sorted(changes.items()), *others.items(), *([] if agent is None else [("agent", agent.name)])]
    named += [] if until is None else [("until sure of", until.against)]
    label = ", ".join([*([on] if on else []), *(f"{key}={value}" for key, value in named)])
    if foreign is not None:
        label = ", ".join(part for part in (foreign.label, label) if part)

    def say(text: str) -> None:
        folder.append_event("evaluation", text)
        tell(text)

    async def evaluate() -> Summary:
        try:
            if foreign is not None:
                await foreign.open(system.config)
            return await evaluate_policy(
                heldout,
                folder,
                name=name_evaluation("again" if foreign is None else "api", on, at) + suffix,
                label=label or f"checkpoint of step {at}",
                step=at,
                changes=changes_here or None,
                agent=agent,
                foreign=foreign,
                until=until,
                tell=say,
            )
        finally:
            if foreign is not None:
                await foreign.close()
            await system.close()

    return asyncio.run(evaluate())


def _change_evaluate(config: RunConfig, others: Mapping[str, Any]) -> RunConfig:
    """The recipe with other options of `evaluate`. Raises ConfigError naming one that it cannot have."""
    if not others.get("tasks", config.evaluate.tasks):
        raise ConfigError(
            "evaluate.tasks=0: there is nothing to evaluate; give a number of held-out tasks with --tasks"
        )
    changes = {f"evaluate.{name}": value for name, value in others.items()}
    return check_sections(change_resolved(config, changes=changes))


def _find_heldout(
    system: System, recipe: EvaluateSection, on: str, tasks: int | None, changes: Mapping[str, Any]
) -> HeldOutSet:
    """The set to play. Raises ConfigError as `find_set`, and where the reported tasks would be among those that chose
    the checkpoint."""
    if on:
        return find_set(system, on, changes=changes, tasks=tasks)
    shared = min(system.config.evaluate.tasks - recipe.tasks, recipe.selection_tasks)
    if shared > 0:
        raise ConfigError(
            f"evaluate.tasks={system.config.evaluate.tasks} has {shared} of the {recipe.selection_tasks} held-out "
            f"tasks of evaluate.selection_tasks, on which checkpoints were chosen; use at most {recipe.tasks}, or "
            f"--on {SELECTION}"
        )
    return HeldOutSet(name="", system=system, num_tasks=system.config.evaluate.tasks)
