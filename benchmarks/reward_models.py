"""Measure reward models against the truth, as JSON files in a folder; `draw` makes the tables and pictures of
packages/turnwise-rewards/docs/reward_models.md.

    python benchmarks/reward_models.py labels OUT [--seeds N]       labels in the laboratory's worlds, exact values
    python benchmarks/reward_models.py chain OUT RUN... [--models NAME...]
                                                                    labels, models and best-of-n in the chain world
    python benchmarks/reward_models.py more OUT RUN...              after `chain`: models without continuations on as
                                                                    many sampled tokens
    python benchmarks/reward_models.py implicit OUT RUN...          after `chain`: the implicit model
    python benchmarks/reward_models.py runs OUT NAME=RUN...         true success and a model's score over RL steps
    python benchmarks/reward_models.py draw OUT DIR                 tables on standard output, pictures in DIR

RUN is a run of reward_models/chain, and of reward_models/rl for `runs`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # `laboratory` is not installed

import numpy as np
from chain_values import compute_values, read_values
from reward_model_implicit import score_implicitly
from reward_model_labels import measure_worlds
from reward_model_plots import draw_all
from reward_model_runs import read_runs

from turnwise.building.trainer import build_packing
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.runs.build import System
from turnwise.runs.evaluate import load_trained_system
from turnwise.runs.heldout import heldout_draws
from turnwise.store.trajectories import load_groups, save_groups
from turnwise_rewards.reward_models.calibration import correlate, measure_scores
from turnwise_rewards.reward_models.folder import load_reward_model, save_reward_model
from turnwise_rewards.reward_models.labels import FORKS, LABELS
from turnwise_rewards.reward_models.model import RewardModel, fit, score_turns, start_reward_model
from turnwise_rewards.reward_models.selection import FOLDS, rate_choices
from turnwise_rewards.runs.reward_models import TrainingPlan, find_kind, list_ways, list_ways_of, sample_groups

PLAN = TrainingPlan(tasks=300, attempts=4, continuations=4, steps=1000, batch=24, lr=5e-3)
MORE = replace(PLAN, labels="returns", tasks=1100, attempts=12)
EXACT_TASKS = 30
"""Tasks whose labels, and as many whose scores, are compared with exact values."""
HELDOUT_TASKS, HELDOUT_ATTEMPTS = 100, 8
MODELS = ("soft", "outcome", "hard", "returns")


def main() -> None:
    """Measure or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["labels", "chain", "more", "implicit", "runs", "draw"])
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="labels to train on")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "labels":
        write(arguments.out / "labels.json", measure_worlds(arguments.seeds))
    elif arguments.what == "chain":
        for run in arguments.names:
            measure_chain(Path(run), arguments.out, arguments.models)
    elif arguments.what == "more":
        for run in arguments.names:
            measure_more(Path(run), arguments.out)
    elif arguments.what == "implicit":
        for run in arguments.names:
            measure_implicit(Path(run), arguments.out)
    elif arguments.what == "runs":
        write(arguments.out / "runs.json", read_runs([read_name(name) for name in arguments.names]))
    else:
        draw_all(arguments.out, Path(arguments.names[0]))


def read_name(text: str) -> tuple[str, Path]:
    """`NAME=RUN`; runs of other seeds may have the same name."""
    name, _, path = text.partition("=")
    return name, Path(path)


def write(path: Path, value: Any) -> None:
    """Write JSON."""
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def measure_chain(run: Path, out: Path, names: Sequence[str]) -> None:
    """Everything about one policy, in `out/chain_seedN.json`; samples and models are kept beside it."""
    _, system, _ = load_trained_system(run)
    seed = system.config.run.seed
    started = time.process_time()
    train, heldout = asyncio.run(sample(system, out / f"samples_seed{seed}"))
    seconds = {"sampling": time.process_time() - started}
    models: dict[str, RewardModel] = {}
    for name in names:
        started = time.process_time()
        models[name] = train_model(system, name, train, out / f"{name}_seed{seed}")
        seconds[name] = time.process_time() - started
    ways = list_ways(models, heldout, seed)
    rated = rate_choices([group.trajectories for group in heldout], ways, attempts=[1, 2, 4, HELDOUT_ATTEMPTS])
    result: dict[str, Any] = {
        "seed": seed,
        "plan": asdict(PLAN),
        "cpu_seconds": seconds,
        "best_of": [{**asdict(each), "share": each.share, "interval": each.interval} for each in rated],
        "process": count_process(heldout),
    }
    write(out / f"chain_seed{seed}.json", result)
    truth, coverage = find_truth(system, train[:EXACT_TASKS])
    heldout_truth, heldout_coverage = find_truth(system, heldout[:EXACT_TASKS])
    result["least_valid_probability"] = min(coverage, heldout_coverage)
    result["labels"] = {name: compare_labels(name, train, truth) for name in LABELS}
    result["models"] = {
        name: compare_scores(model, heldout[:EXACT_TASKS], heldout_truth) for name, model in models.items()
    }
    write(out / f"chain_seed{seed}.json", result)


def measure_more(run: Path, out: Path) -> None:
    """Add models of attempts without continuations, on as many tokens as those of `PLAN`, to `out/chain_seedN.json`."""
    _, system, _ = load_trained_system(run)
    path = out / f"chain_seed{system.config.run.seed}.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    seed = result["seed"]
    _, heldout = asyncio.run(sample(system, out / f"samples_seed{seed}", MORE))
    train = load_groups(out / f"samples_seed{seed}", "more")
    truth, _ = find_truth(system, heldout[:EXACT_TASKS])
    for name in ("returns", "outcome"):
        model = train_model(system, name, train, out / f"{name}_more_seed{seed}")
        label = f"{name}, more attempts"
        result["models"][label] = compare_scores(model, heldout[:EXACT_TASKS], truth)
        ways = list_ways({label: model}, heldout, seed)
        rated = rate_choices([group.trajectories for group in heldout], ways, attempts=[1, 2, 4, HELDOUT_ATTEMPTS])
        kept = [each for each in rated if label in each.name]
        result["best_of"] += [{**asdict(each), "share": each.share, "interval": each.interval} for each in kept]
    result["more_tokens"] = sum(t.num_sampled_tokens for group in train for t in group.trajectories)
    write(path, result)


def measure_implicit(run: Path, out: Path) -> None:
    """Add the implicit model of one policy to `out/chain_seedN.json`."""
    _, system, _ = load_trained_system(run)
    path = out / f"chain_seed{system.config.run.seed}.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    train, heldout = asyncio.run(sample(system, out / f"samples_seed{result['seed']}"))
    attempts = [t for group in heldout for t in group.trajectories]
    scores, _ = score_implicitly(system, [each.trajectory for each in LABELS["outcome"](train)], attempts)
    compared = [t for group in heldout[:EXACT_TASKS] for t in group.trajectories]
    truth, _ = find_truth(system, heldout[:EXACT_TASKS])
    result["models"]["implicit"] = compare_with_truth(scores[: len(compared)], compared, truth)
    ways = list_ways_of("implicit", dict(zip((t.id for t in attempts), scores, strict=True)), tuple(FOLDS))
    rated = rate_choices([group.trajectories for group in heldout], ways, attempts=[1, 2, 4, HELDOUT_ATTEMPTS])
    result["best_of"] += [{**asdict(each), "share": each.share, "interval": each.interval} for each in rated]
    write(path, result)


async def sample(
    system: System, folder: Path, more: TrainingPlan | None = None
) -> tuple[list[TrajectoryGroup], list[TrajectoryGroup]]:
    """Training attempts with continuations, and held-out attempts; those of an earlier call where it kept them.

    Attempts by the plan `more` are kept in the folder, too."""
    if more is not None and not (folder / "more.jsonl").exists():
        save_groups(folder, "more", await sample_groups(system, more), decode=None)
    if not (folder / "heldout.jsonl").exists():
        train = await sample_groups(system, replace(PLAN, labels="soft"))
        save_groups(folder, "train", train, decode=None)
        worker = replace(system.worker("train"), scope="held out")
        draws = heldout_draws(system.family, HELDOUT_TASKS)
        groups = await worker.run_groups(draws, group_size=HELDOUT_ATTEMPTS)
        save_groups(folder, "heldout", groups, decode=None)
    await system.close()
    return load_groups(folder, "train"), load_groups(folder, "heldout")


def find_truth(
    system: System, groups: Sequence[TrajectoryGroup]
) -> tuple[dict[str, dict[tuple[int, ...], float]], float]:
    """Exact values by task, and the least probability of valid replies."""
    found = {group.task.id: compute_values(system.model, system.renderer, group.task) for group in groups}
    return {name: values for name, (values, _) in found.items()}, min(coverage for _, coverage in found.values())


def list_truth(attempt: Trajectory, truth: dict[str, dict[tuple[int, ...], float]]) -> list[float]:
    """The exact success probability after every turn."""
    values = truth[attempt.task_id]
    return [0.0 if state is None else values[state] for state in read_values(attempt)]


def compare_labels(name: str, groups: Sequence[TrajectoryGroup], truth: dict[str, Any]) -> dict[str, Any]:
    """Labels before the last turn beside the exact values; the interval is over tasks."""
    rows: list[tuple[float, float]] = []
    tasks: dict[str, list[float]] = {}
    labelled = [each for each in LABELS[name](groups) if each.trajectory.task_id in truth]
    for each in labelled:
        for label, exact in list(zip(each.labels, list_truth(each.trajectory, truth), strict=True))[:-1]:
            if label is not None:
                rows.append((label, exact))
                tasks.setdefault(each.trajectory.task_id, []).append(label - exact)
    tokens = sum(t.num_sampled_tokens for group in groups for t in group.trajectories)
    alone = sum(len(turn.completion.token_ids) for each in LABELS["outcome"](groups) for turn in each.trajectory.turns)
    count = sum(each.num_labels for each in LABELS[name](groups))
    if not rows:
        return {"labels": count, "tokens_per_label": alone / count}
    given, true = (np.array(column) for column in zip(*rows, strict=True))
    means = np.array([np.mean(values) for values in tasks.values()])
    half = 1.96 * float(means.std(ddof=1)) / len(means) ** 0.5
    return {
        "labels": count,
        "compared": len(rows),
        "mean_label": float(given.mean()),
        "mean_exact": float(true.mean()),
        "bias": float(means.mean()),
        "bias_half_width": half,
        "correlation": correlate(given, true),
        "tokens_per_label": (tokens if name in FORKS else alone) / count,
    }


def train_model(system: System, name: str, groups: Sequence[TrajectoryGroup], folder: Path) -> RewardModel:
    """A model trained on one kind of labels of the same attempts, kept in `folder`; that of an earlier call."""
    if folder.exists():
        return load_reward_model(str(folder), system.tokenizer, source="MODEL")
    seed = system.config.run.seed
    packing = build_packing(system.config)
    model = start_reward_model(system.model, system.tokenizer, kind=find_kind(name), lr=PLAN.lr, packing=packing)
    labelled = [each for each in LABELS[name](groups) if each.num_labels]
    losses: list[float] = []
    fit(model, labelled, steps=PLAN.steps, batch_size=PLAN.batch, seed=seed, report=lambda _, loss: losses.append(loss))
    means = [float(np.mean(part)) for part in np.array_split(losses, 8)]
    print(f"{name}: cross-entropy {' '.join(f'{mean:.3f}' for mean in means)}", file=sys.stderr, flush=True)
    save_reward_model(model, folder, {"plan": asdict(replace(PLAN, labels=name))})
    return model


def compare_scores(model: RewardModel, groups: Sequence[TrajectoryGroup], truth: dict[str, Any]) -> dict[str, Any]:
    """Scores of held-out turns beside the exact values: of turns before the last, and of ends."""
    attempts = [t for group in groups for t in group.trajectories]
    return compare_with_truth(score_turns(model, attempts), attempts, truth)


def compare_with_truth(
    scores: Sequence[Sequence[float]], attempts: Sequence[Trajectory], truth: dict[str, Any]
) -> dict[str, Any]:
    """Scores of turns beside the exact values: of turns before the last, and of ends."""
    exact = [list_truth(attempt, truth) for attempt in attempts]
    before = [pair for row, true in zip(scores, exact, strict=True) for pair in zip(row[:-1], true[:-1], strict=True)]
    ends = [(row[-1], true[-1]) for row, true in zip(scores, exact, strict=True)]
    return {
        "turns": measure_scores(*map(list, zip(*before, strict=True))).to_json(),
        "ends": measure_scores(*map(list, zip(*ends, strict=True))).to_json(),
    }


def count_process(groups: Sequence[TrajectoryGroup]) -> dict[str, int]:
    """How many right attempts had a wrong step."""
    rewards = [t.reward for group in groups for t in group.trajectories if isinstance(t.reward, Scored)]
    right = [reward for reward in rewards if reward.part("success") == 1]
    return {
        "attempts": len(rewards),
        "right": len(right),
        "right_with_wrong_step": sum(reward.part("process") == 0 for reward in right),
    }


if __name__ == "__main__":
    main()
