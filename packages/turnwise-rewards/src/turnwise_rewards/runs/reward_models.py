"""Reward models of a run: trained on attempts of its policy, evaluated on held-out tasks, used to choose answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.building.trainer import build_packing
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import ForkableEnvironment
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Draw, Scored, Trajectory, TrajectoryGroup, TrajectoryId
from turnwise.evaluation.summary import is_success
from turnwise.models.rows import find_device
from turnwise.rollout.branching import ValueEstimates
from turnwise.runs.build import System
from turnwise.runs.data_files import check_data_files
from turnwise.runs.evaluate import load_trained_system
from turnwise.runs.heldout import heldout_draws
from turnwise.runs.openings import take_task
from turnwise.runs.sft import first_rl_task
from turnwise.store.groups import GroupStore
from turnwise.store.run_folder import RunFolder, write_bytes_atomic
from turnwise_rewards.reward_models.calibration import Quality, measure_scores
from turnwise_rewards.reward_models.folder import load_reward_model, save_reward_model
from turnwise_rewards.reward_models.labels import FORKS, Labelled, label_groups
from turnwise_rewards.reward_models.model import Kind, RewardModel, fit, score_turns, start_reward_model
from turnwise_rewards.reward_models.selection import (
    FOLDS,
    Choose,
    Rated,
    choose_best,
    choose_by_votes,
    choose_first,
    choose_right,
    fold_scores,
    rate_choices,
    score_at_random,
)
from turnwise_rewards.reward_models.step_judge import write_rows

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What a reward model is trained on, and how long."""

    labels: str = "soft"
    """A name of `labels.LABELS`."""
    stored: bool = False
    """Whether to label the trajectories that the run has stored, instead of sampling some."""
    tasks: int = 200
    """Training tasks that are sampled; the first that RL uses."""
    attempts: int = 4
    """Attempts per task."""
    continuations: int = 4
    """Continuations from the state before every reply, where the labels read them."""
    steps: int = 300
    batch: int = 32
    """Attempts per step."""
    lr: float = 1e-3


def train_reward_model(
    run: Path, out: Path, plan: TrainingPlan, *, show: Show, step: int | str | None = None, device: str | None = None
) -> dict[str, Any]:
    """Train a model from the policy of a run's checkpoint and write it to the folder `out`; returns how it was made.

    Raises ConfigError where `out` exists, the labels need an environment that can fork and this one cannot, or the
    policy is an adapter; DataError where nothing can be labelled."""
    check_new(out)
    system, groups, at = _gather(run, plan, step, device)
    if system.config.model.lora is not None:
        raise ConfigError(
            "a reward model copies a whole policy, and this run has an adapter (model.lora); merge it into its model"
        )
    labelled = label_groups(groups, plan.labels)
    sampled = sum(t.num_sampled_tokens for group in groups for t in group.trajectories)
    show(describe_labels(labelled, plan.labels, sampled))
    packing = build_packing(system.config)
    model = start_reward_model(system.model, system.tokenizer, kind=find_kind(plan.labels), lr=plan.lr, packing=packing)
    losses: list[float] = []

    def report(number: int, loss: float) -> None:
        losses.append(loss)
        if (number + 1) % max(1, plan.steps // 5) == 0:
            show(f"step {number + 1}: cross-entropy {loss:.3f} nats")

    seed = derive_seed(system.config.run.seed, "reward model")
    fit(model, labelled, steps=plan.steps, batch_size=plan.batch, seed=seed, report=report)
    last = losses[-max(1, len(losses) // 10) :]
    facts = {
        "run": str(run),
        "step": at,
        "plan": asdict(plan),
        "num_labels": sum(each.num_labels for each in labelled),
        "sampled_tokens": sampled,
        "loss": sum(last) / len(last),
    }
    save_reward_model(model, out, facts)
    show(f"reward model of kind {model.kind}: {out}")
    return facts


def check_new(out: Path) -> None:
    """Raise ConfigError if something is there already."""
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise ConfigError(f"{out} already exists; name another path, or delete it first")


def _gather(
    run: Path, plan: TrainingPlan, step: int | str | None, device: str | None
) -> tuple[System, list[TrajectoryGroup], int]:
    """The system of a checkpoint, closed, attempts to label (sampled by it, or those that the run has stored), and the
    checkpoint's step."""
    folder, system, at = load_trained_system(run, step, device=device)
    check_data_files(folder.path, system.family)

    async def gather() -> list[TrajectoryGroup]:
        try:
            return load_stored(folder.path) if plan.stored else await sample_groups(system, plan)
        finally:
            await system.close()

    return system, asyncio.run(gather()), at


def find_kind(labels: str) -> Kind:
    """The kind of model that learns these labels."""
    return "outcome" if labels == "outcome" else "process"


def describe_labels(labelled: Sequence[Labelled], method: str, sampled: int) -> str:
    """One line: how many labels, their mean, and what they cost."""
    labels = [label for each in labelled for label in each.labels if label is not None]
    mean = sum(labels) / len(labels)
    right = sum(is_success(each.trajectory) for each in labelled) / len(labelled)
    return (
        f"{len(labels):,} labels ({method}) of {len(labelled):,} attempts, mean {mean:.3f}; {right:.1%} of the "
        f"attempts succeeded; {sampled:,} sampled tokens"
    )


async def sample_groups(system: System, plan: TrainingPlan) -> list[TrajectoryGroup]:
    """Sample attempts at training tasks as RL does, with continuations where the labels read some.

    Raises ConfigError if those need a fork that the environment has not, DataError past the last task, EnvironmentFault
    if too many attempts are Invalid."""
    family, first = system.family, first_rl_task(system.config)
    problem = f"the training split has fewer than {first + plan.tasks} tasks; use fewer"
    draws = [Draw(index=i, task=take_task(family, "train", first + i, problem)) for i in range(plan.tasks)]
    worker = replace(system.worker("train"), scope="reward model")
    if plan.labels in FORKS:
        check_can_fork(family.build_environment(draws[0].task), plan.labels, system.config.environment.name)
        worker = replace(worker, branching=ValueEstimates(num_continuations=plan.continuations))
    groups = await worker.run_groups(draws, group_size=plan.attempts)
    worker.failure.check(groups)
    return groups


def export_questions(
    run: Path, out: Path, plan: TrainingPlan, *, window: int, step: int | str | None = None, device: str | None = None
) -> dict[Path, int]:
    """Write labelled steps as files of labels for judges (docs/judges.md): those of the last tenth of the tasks beside
    `out`, as NAME.heldout.jsonl. Returns the number of rows of each.

    Raises as `train_reward_model` does, and DataError for a single task."""
    check_new(out)
    if plan.tasks < 2 and not plan.stored:
        raise DataError("a tenth of the tasks is held out, and there is only one; raise --tasks")
    _, groups, _ = _gather(run, plan, step, device)
    last = max(1, len(groups) // 10)
    counts = {}
    for path, part in ((out, groups[:-last]), (out.with_suffix(".heldout.jsonl"), groups[-last:])):
        rows = write_rows(part, label_groups(part, plan.labels), window=window)
        write_bytes_atomic(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        counts[path] = len(rows)
    return counts


def check_can_fork(environment: object, labels: str, name: str) -> None:
    """Raise ConfigError if the environment of this name has no fork, which the labels need."""
    if not isinstance(environment, ForkableEnvironment):
        raise ConfigError(
            f"labels={labels!r} continue attempts from their states, and {type(environment).__name__} of "
            f"environment.name={name!r} cannot fork; define `async def fork(self)` on it, or use labels 'outcome' or "
            "'returns'"
        )


def load_stored(run: Path) -> list[TrajectoryGroup]:
    """Load every group that a run has stored. Raises DataError if there is none."""
    store = GroupStore(run)
    draws = store.list_draws()
    if not draws:
        raise DataError(f"run {run} has stored no trajectories of RL; leave --stored out to sample some")
    return [store.load(draw) for draw in draws]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A reward model on held-out attempts of a run's policy."""

    ends: Quality
    """Its scores of whole attempts, compared with their outcomes."""
    turns: Quality | None
    """Its scores of turns before the last, compared with the outcomes; None without such turns."""
    attempts: int
    success: float

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        turns = None if self.turns is None else self.turns.to_json()
        return {"ends": self.ends.to_json(), "turns": turns, "attempts": self.attempts, "success": self.success}


def evaluate_reward_model(
    run: Path, model: str, *, tasks: int, attempts: int, step: int | str | None = None, device: str | None = None
) -> Evaluation:
    """Compare a model's scores with the outcomes of sampled attempts at held-out tasks; written to
    `RUN/reward_models/NAME.json`."""
    folder, groups, [loaded] = _sample_heldout(run, [model], tasks, attempts, step, device)
    evaluation = measure_model(loaded, [t for group in groups for t in group.trajectories])
    folder.write_json(f"reward_models/{Path(model).name}.json", evaluation.to_json())
    return evaluation


def measure_model(model: RewardModel, attempts: Sequence[Trajectory]) -> Evaluation:
    """Compare scores with outcomes. Raises DataError without a scored attempt."""
    played = [t for t in attempts if t.turns and isinstance(t.reward, Scored)]
    if not played:
        raise DataError(f"none of {len(attempts)} attempts was scored; there is nothing to compare")
    scores = score_turns(model, played)
    outcomes = [float(is_success(t)) for t in played]
    before = [(s, y) for row, y in zip(scores, outcomes, strict=True) for s in row[:-1]]
    return Evaluation(
        ends=measure_scores([row[-1] for row in scores], outcomes),
        turns=measure_scores([s for s, _ in before], [y for _, y in before]) if before else None,
        attempts=len(played),
        success=sum(outcomes) / len(outcomes),
    )


def rate_best_of(
    run: Path,
    models: Sequence[str],
    *,
    tasks: int,
    attempts: Sequence[int],
    step: int | str | None = None,
    device: str | None = None,
) -> list[Rated]:
    """Rate the answers that each model, the majority and the controls choose among sampled attempts at held-out tasks;
    written to `RUN/reward_models/best_of.json`."""
    folder, groups, loaded = _sample_heldout(run, models, tasks, max(attempts), step, device)
    ways = list_ways({Path(path).name: model for path, model in zip(models, loaded, strict=True)}, groups)
    rated = rate_choices([group.trajectories for group in groups], ways, attempts=attempts)
    rows = [{**asdict(each), "share": each.share, "interval": each.interval} for each in rated]
    folder.write_json("reward_models/best_of.json", rows)
    return rated


def list_ways(models: dict[str, RewardModel], groups: Sequence[TrajectoryGroup], seed: int = 0) -> dict[str, Choose]:
    """Every way to choose: the controls, then best-of-n and the weighted vote of each model (of a process model by each
    fold of its scores)."""
    ways = {
        "one sample": choose_first,
        "majority": choose_by_votes(lambda attempt: 1.0),
        "random scores": choose_best(score_at_random(seed)),
        "oracle (pass@n)": choose_right,
    }
    attempts = [t for group in groups for t in group.trajectories]
    for name, model in models.items():
        rows = dict(zip((t.id for t in attempts), score_turns(model, attempts), strict=True))
        ways |= list_ways_of(name, rows, tuple(FOLDS) if model.kind == "process" else ())
    return ways


def list_ways_of(name: str, rows: Mapping[TrajectoryId, Sequence[float]], folds: Sequence[str]) -> dict[str, Choose]:
    """Best-of-n and the weighted vote by scores of turns, for every fold; without folds by the last score."""
    ways = {}
    for fold in folds or ("last",):
        scores = {identity: fold_scores(row, fold) for identity, row in rows.items()}
        label = f"{name}, {fold}" if folds else name
        read = partial(_read_score, scores)
        ways[f"best by {label}"], ways[f"vote by {label}"] = choose_best(read), choose_by_votes(read)
    return ways


def _read_score(scores: Mapping[TrajectoryId, float], attempt: Trajectory) -> float:
    return scores[attempt.id]


def _sample_heldout(
    run: Path, models: Sequence[str], tasks: int, attempts: int, step: int | str | None, device: str | None
) -> tuple[RunFolder, list[TrajectoryGroup], list[RewardModel]]:
    """Sample held-out tasks at the temperature of training, and load the models; these first, as they are refused
    before anything is sampled."""
    folder, system, _ = load_trained_system(run, step, device=device)
    check_data_files(folder.path, system.family)
    place = find_device(system.model)
    loaded = [load_reward_model(path, system.tokenizer, source="MODEL", device=place) for path in models]
    worker = replace(system.worker("train"), scope="held out")

    async def sample() -> list[TrajectoryGroup]:
        try:
            return await worker.run_groups(heldout_draws(system.family, tasks), group_size=attempts)
        finally:
            await system.close()

    groups = asyncio.run(sample())
    worker.failure.check(groups)
    return folder, groups, loaded
