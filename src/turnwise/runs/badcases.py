"""Badcases of a run's evaluations: names each failed attempt, finds where it diverged, writes the tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from turnwise.badcases.continued import find_by_continuations
from turnwise.badcases.divergence import Divergence, Method, Unknown, find_largest_fall
from turnwise.badcases.judged import find_by_judge
from turnwise.badcases.naming import OTHER, cluster, list_names, name_fault
from turnwise.badcases.planned import find_by_oracle, find_oracle
from turnwise.badcases.table import FILE, Badcase, build_table
from turnwise.batching.samples import list_samples
from turnwise.building.families import build_family
from turnwise.building.trainer import build_local_trainer
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError, TurnwiseError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.roles import take_measured
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Draw, Trajectory, TrajectoryGroup
from turnwise.environments.mixture import list_families
from turnwise.evaluation.summary import is_success
from turnwise.reporting.summaries import is_control, load_summaries
from turnwise.rollout.attempt import environment_seed
from turnwise.rollout.limits import is_too_long
from turnwise.runs.evaluate import load_run, load_trained_system
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups

By = Literal["auto", "oracle", "continuations", "critic", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How divergences are looked for."""

    by: By = "auto"
    """"auto": the oracle, if the family has one."""
    most: int = 100
    """Failed attempts of an evaluation whose divergence is looked for, the first ones; all are named."""
    continuations: int = 8
    """Continuations from each turn."""
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """One evaluation."""

    summary: Mapping[str, Any]
    played: Sequence[tuple[TrajectoryGroup, Trajectory]]
    """Every attempt that measures the policy."""
    failed: Sequence[tuple[TrajectoryGroup, Trajectory]]


def find_badcases(run: Path, *, evaluation: str | None, step: int | None, search: Search) -> list[dict[str, Any]]:
    """Write `evaluations/NAME.badcases.json` for the chosen evaluations, and return what was written, in order.

    `evaluation` is a name, `step` takes all evaluations of that step without controls; None of both takes the first and
    the last without controls. Raises DataError in one line where there is none, where it was interrupted, or where its
    tasks are not those that the run's recipe makes now; ConfigError for a method that the run does not allow.
    """
    folder, config = load_run(run, device=search.device)
    summaries = _choose(folder, config, evaluation, step)
    family = build_family(config)
    loaded = [_load(folder, summary, family) for summary in summaries]
    tables = asyncio.run(_find_all(folder, config, family, loaded, search))
    for table in tables:
        folder.write_json(f"evaluations/{table['evaluation']}{FILE}", table)
    return tables


# ------------------------------------------------------------------------------------------- evaluations


def _choose(folder: RunFolder, config: RunConfig, evaluation: str | None, step: int | None) -> list[Mapping[str, Any]]:
    run, path = folder.path, folder.path / "evaluations"
    if evaluation is not None:
        return [_read_summary(run, evaluation)]
    summaries = [summary for summary in load_summaries(run) if not is_control(summary)]
    if step is not None:
        again = [
            file.name.removesuffix(".summary.json") for file in sorted(path.glob(f"again_{step:06d}*.summary.json"))
        ]
        chosen = [s for s in summaries if s["step"] == step] + [_read_summary(run, name) for name in again]
        if not chosen:
            steps = ", ".join(str(summary["step"]) for summary in summaries) or "none"
            raise DataError(
                f"{run} has no evaluation of step {step}; it has steps {steps}. Make one with `turnwise evaluate {run} "
                f"--step {step}`"
            )
        return chosen
    if not summaries:
        halves = sorted(file.stem for file in path.glob("*.npz") if not (path / f"{file.stem}.summary.json").exists())
        if halves:
            raise DataError(_say_interrupted(run, halves[0]))
        if not config.evaluate.tasks:
            raise DataError(
                f"{run} has no evaluation: its recipe has evaluate.tasks=0. Make one with `turnwise evaluate {run} "
                "--tasks 200`, then name it: --step N"
            )
        raise DataError(f"{run} has no evaluation yet; make one with `turnwise evaluate {run}`, then name it: --step N")
    return [summaries[0], *summaries[1:][-1:]]


def _read_summary(run: Path, name: str) -> Mapping[str, Any]:
    path = run / "evaluations"
    try:
        summary = json.loads((path / f"{name}.summary.json").read_bytes())
    except FileNotFoundError:
        if any((path / f"{name}{ending}").exists() for ending in (".npz", ".jsonl")):
            raise DataError(_say_interrupted(run, name)) from None
        known = [file.name.removesuffix(".summary.json") for file in sorted(path.glob("*.summary.json"))]
        raise DataError(
            f"{run} has no evaluation {name!r}; it has {', '.join(known) or 'none: make one with `turnwise evaluate`'}"
        ) from None
    except (OSError, ValueError) as cause:
        raise DataError(f"cannot read {path / name}.summary.json ({cause}); evaluate again") from cause
    if not isinstance(summary, dict) or not {"name", "label", "step"} <= summary.keys():
        raise DataError(f"{path / name}.summary.json is no summary of an evaluation; evaluate again")
    return summary


def _say_interrupted(run: Path, name: str) -> str:
    step = next((part for part in name.split("_") if part.isdigit()), "latest")
    return (
        f"evaluation {name!r} of {run} was interrupted before its summary was written; make it again with `turnwise "
        f"evaluate {run} --step {int(step) if step.isdigit() else step}`"
    )


def _load(folder: RunFolder, summary: Mapping[str, Any], family: EnvironmentFamily) -> _Loaded:
    groups = [
        group for group in load_groups(folder.path / "evaluations", str(summary["name"])) if not is_too_long(group)
    ]
    check_derivable(family, groups, str(summary["name"]))
    played = [(group, trajectory) for group in groups for trajectory in take_measured(group)]
    if not played:
        raise DataError(f"evaluation {summary['name']!r} of {folder.path} has no attempt; evaluate again with --tasks")
    failed = [(group, trajectory) for group, trajectory in played if not is_success(trajectory)]
    return _Loaded(summary=summary, played=played, failed=failed)


def check_derivable(family: EnvironmentFamily, groups: Sequence[TrajectoryGroup], name: str) -> None:
    """Raise DataError unless every task of an evaluation is the one that the family makes at its index now."""
    for group in groups:
        index = group.draw.index
        try:
            task = family.task("heldout", index)
        except (TurnwiseError, IndexError) as cause:
            raise DataError(
                f"evaluation {name!r}: held-out task {index} cannot be made again ({cause}); restore the data files of "
                "the run, or evaluate again"
            ) from cause
        if task.id != group.task.id:
            raise DataError(
                f"evaluation {name!r}: held-out task {index} is now {task.id}, and {group.task.id} was played; the "
                "environment or its data has changed since: evaluate again with this version"
            )


# ------------------------------------------------------------------------------------------- attempts


async def _find_all(
    folder: RunFolder, config: RunConfig, family: EnvironmentFamily, loaded: Sequence[_Loaded], search: Search
) -> list[dict[str, Any]]:
    tables = []
    for evaluation in loaded:
        step = int(evaluation.summary["step"])
        changes = _read_changes(config, str(evaluation.summary["name"]))
        played = build_family(config, changes) if changes else family
        found: list[Divergence | Unknown | None] = [None] * len(evaluation.failed)
        few = evaluation.failed[: search.most]
        async with AsyncExitStack() as stack:
            if few:
                found[: len(few)] = await _diverge(folder, config, played, few, step, search, stack)
        badcases = [
            Badcase(
                task=group.task,
                trajectory=trajectory,
                fault=name_fault(played, group.task, trajectory),
                divergence=divergence,
            )
            for (group, trajectory), divergence in zip(evaluation.failed, found, strict=True)
        ]
        names = list_names(played, [group.task for group, _ in evaluation.played])
        plain = [(group.task, trajectory) for group, trajectory in evaluation.played]
        tables.append(build_table(evaluation.summary, _cluster(badcases), plain, names))
    return tables


def _read_changes(config: RunConfig, name: str) -> Mapping[str, Any]:
    """The changes of `environment.args` with which a control of the recipe was played; empty for other evaluations."""
    return next((changes for control, changes in config.evaluate.controls.items() if name.endswith(f"_{control}")), {})


def _cluster(badcases: Sequence[Badcase]) -> list[Badcase]:
    """Put what has no name into clusters."""
    texts = {place: b.fault.detail for place, b in enumerate(badcases) if b.fault.name == OTHER}
    names = cluster(texts)
    return [
        replace(badcase, fault=replace(badcase.fault, name=names[place])) if place in names else badcase
        for place, badcase in enumerate(badcases)
    ]


async def _diverge(
    folder: RunFolder,
    config: RunConfig,
    family: EnvironmentFamily,
    failed: Sequence[tuple[TrajectoryGroup, Trajectory]],
    step: int,
    search: Search,
    stack: AsyncExitStack,
) -> list[Divergence | Unknown | None]:
    """Look for the divergence of these attempts by the chosen method."""
    method = _choose_method(config, family, search.by)
    if method is None:
        why = Unknown(reason="the family has no oracle; name another method with --by")
        return [why] * len(failed)
    seed = derive_seed(config.run.seed, "evaluate")
    if method == "oracle":
        oracle = find_oracle(family)
        assert oracle is not None, "the method was chosen by it"
        return [
            await find_by_oracle(
                family,
                oracle,
                group.task,
                trajectory,
                seed=environment_seed(seed, group.draw),
                max_turns=config.rollout.max_turns,
            )
            for group, trajectory in failed
        ]
    _, system, _ = load_trained_system(folder.path, step, device=search.device)
    stack.push_async_callback(system.close)
    if method == "judge":
        judge = system.judges[next(iter(config.judges))]
        return [await find_by_judge(judge, group.task, trajectory) for group, trajectory in failed]
    if method == "critic":
        return _diverge_by_critic(folder, system, failed, step)
    worker = system.worker("evaluate")
    sampling = replace(worker.sampling, temperature=config.rollout.temperature, top_p=1.0, top_k=0, min_p=0.0)
    gate = asyncio.Semaphore(config.engine.max_concurrency)
    results = await asyncio.gather(
        *(
            find_by_continuations(
                family,
                system.engine,
                system.renderer,
                worker.limits,
                sampling,
                Draw(index=group.draw.index, task=group.task),
                trajectory,
                num_continuations=search.continuations,
                gate=gate,
            )
            for group, trajectory in failed
        )
    )
    return list(results)


def _choose_method(config: RunConfig, family: EnvironmentFamily, by: By) -> Method | None:
    """The method to use; None if "auto" finds no oracle. Raises ConfigError for a method that is impossible."""
    missing = [each for each in list_families(family) if find_oracle(each) is None]
    if by == "auto":
        return None if missing else "oracle"
    if by == "oracle" and missing:
        name = getattr(missing[0], "name", type(missing[0]).__name__)
        raise ConfigError(f"--by oracle: environment {name!r} has no oracle; use --by continuations, critic or judge")
    if by == "critic" and config.critic.kind == "none":
        raise ConfigError(
            "--by critic: the run has no critic (critic.kind is 'none'); use --by oracle or continuations"
        )
    if by == "judge" and not config.judges:
        raise ConfigError("--by judge: the run's recipe has no [judges.NAME]; use --by oracle or continuations")
    return by


def _diverge_by_critic(
    folder: RunFolder, system: Any, failed: Sequence[tuple[TrajectoryGroup, Trajectory]], step: int
) -> list[Divergence | Unknown | None]:
    """The turn with the largest fall of the critic's value of the state before it."""
    trainer = build_local_trainer(system.resolved, system.model, system.tokenizer)
    trainer.load(folder.path / "checkpoints" / f"step_{step:06d}")
    groups = [replace(group, trajectories=(trajectory,), baseline=None, discarded=()) for group, trajectory in failed]
    samples = list_samples(groups)
    values = trainer.score(samples, frozenset({"values"})).values
    assert values is not None, "values were asked for"
    by_id = {sample.origin.trajectory: value for sample, value in zip(samples, values, strict=True)}
    found: list[Divergence | Unknown | None] = []
    for _, trajectory in failed:
        lengths = [len(turn.completion.token_ids) for turn in trajectory.turns]
        starts = [sum(lengths[:at]) for at in range(len(lengths))]
        scored = by_id.get(trajectory.id)
        if scored is None:
            found.append(Unknown(reason="the attempt has no sampled token"))
            continue
        found.append(find_largest_fall("critic", [float(scored[start]) for start in starts]))
    return found
