"""Measure what algorithms cost, and whether the well-known ones learn.

    python benchmarks/algorithms.py speed [--tokens 100000]
    python benchmarks/algorithms.py learn [--arms grpo gspo ppo dapo] [--seeds 0] [--output runs/algorithms]
                                          [a.b=value ...]

`speed`: seconds of credit, of everything a loss needs from the whole batch, and of the losses with their gradient,
beside one training step of the laptop recipe's model on the same tokens. A larger model only makes the shares smaller.

`learn`: trains `recipes/search_r1/tiny.toml` once per arm and seed, all arms of a seed from the first one's warm-up,
and prints held-out success before and after with 95% intervals, and the curve of training success."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.credit_table import build_credit
from turnwise.algorithms.losses.inputs import LossInputs
from turnwise.algorithms.losses.table import LOSSES, build_loss
from turnwise.batching.samples import to_samples
from turnwise.batching.weights import compute_sample_weights
from turnwise.config.load import load_config
from turnwise.core.types import (
    Draw,
    RewardPart,
    Sample,
    Scored,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    text_message,
)
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.models.build import build_model, num_parameters
from turnwise.reporting.summaries import load_summaries
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder
from turnwise.testing import make_completion, make_trajectory, make_turn
from turnwise.training.optimizer import build_optimizer
from turnwise.training.policy_step import PolicyLoss, run_policy_step

RECIPE = Path(__file__).parent.parent / "recipes" / "search_r1" / "tiny.toml"
ROUNDS = 5
TURNS, CONTEXT, REPLY = 4, 56, 40
"""Shape of a synthetic trajectory: 384 tokens, 160 of them sampled."""
CREDIT = (
    "grpo",
    "reinforce_plus_plus",
    "gdpo",
    "gae",
    "turn_gae",
    "bilevel_gae",
    "multi_turn_grpo",
    "gigpo",
    "turn_discount",
    "vspo",
)

ARMS: dict[str, list[str]] = {
    "grpo": ["loss.method=grpo"],
    "gspo": ["loss.method=gspo"],
    "ppo": ["credit.method=gae", "critic.kind=separate", "critic.lr=2e-3", "critic.epochs=2"],
    "dapo": ["loss.method=dapo", "rollout.dynamic_sampling.metric=success", "rollout.dynamic_sampling.max_batches=2"],
}
"""Overrides of the recipe; everything else is the same for all."""
COMMON = ["loss.updates_per_step=2"]
"""Overrides for all arms: with one update per batch every ratio would be 1, and GSPO and GRPO the same algorithm."""


def main() -> None:
    """Run the command and print its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    speed = commands.add_parser("speed")
    speed.add_argument("--tokens", type=int, default=100_000)
    learn = commands.add_parser("learn")
    learn.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=sorted(ARMS))
    learn.add_argument("--seeds", type=int, nargs="+", default=[0])
    learn.add_argument("--output", default="runs/algorithms")
    learn.add_argument("--json", action="store_true")
    # Overrides may be anywhere, even after a list of arms.
    overrides = [a for a in sys.argv[1:] if "=" in a and not a.startswith("-")]
    arguments = parser.parse_args([a for a in sys.argv[1:] if a not in overrides])
    if arguments.command == "speed":
        print(json.dumps(measure_speed(arguments.tokens), indent=1))
        return
    results = []
    for seed in arguments.seeds:
        warmed: list[str] = []
        for arm in arguments.arms:
            run, result = measure_learning(arm, seed, arguments.output, [*overrides, *warmed])
            warmed = warmed or [f"model.path={run / 'checkpoints' / 'step_000000'}", "sft.steps=0"]
            results.append(result)
    print(json.dumps(results, indent=1) if arguments.json else to_markdown(results))


# ------------------------------------------------------------------------------------------------ speed


def measure_speed(num_tokens: int) -> dict[str, Any]:
    """Seconds and shares; the share of a method is its seconds over those of a whole step with it."""
    groups, vocab_size = make_groups(num_tokens), 1000
    attempts = {t.id: t for g in groups for t in g.trajectories}
    keys = list(attempts)
    rng = np.random.default_rng(0)
    values = {key: [rng.normal(size=REPLY) for _ in range(TURNS)] for key in keys}

    def give_credit(credit: CheckedCredit) -> object:
        return compute_advantages(credit, groups, to_credit_trajectories(groups, scores={"values": values}))

    credit_s = {name: median_seconds(partial(give_credit, build_credit(name))) for name in CREDIT}
    advantages = compute_advantages(build_credit("grpo"), groups, to_credit_trajectories(groups))
    samples = [sample for key, turns in advantages.items() for sample in to_samples(attempts[key], turns)]
    weights_s = median_seconds(lambda: compute_sample_weights(samples, "prompt_mean"))
    loss_s = {name: median_seconds(partial(take_loss_gradient, name, samples)) for name in LOSSES}
    config = load_config([RECIPE])
    model = build_model(config.model.model_type, config.model.config, vocab_size=vocab_size, seed=0)
    optimizer = build_optimizer(model, lr=1e-9, betas=(0.9, 0.95), weight_decay=0.0)
    loss = PolicyLoss(function=build_loss("ppo"), temperature=1.0)
    step_s = median_seconds(
        lambda: run_policy_step(
            model, optimizer, samples, loss=loss, lr=1e-9, max_grad_norm=1.0, micro_batch_tokens=16384
        ),
        rounds=2,
    )
    worst_credit, worst_loss = max(credit_s, key=credit_s.__getitem__), max(loss_s, key=loss_s.__getitem__)
    return {
        "tokens": sum(len(s.token_ids) for s in samples),
        "sampled_tokens": sum(int(s.loss_mask.sum()) for s in samples),
        "parameters": num_parameters(model),
        "threads": torch.get_num_threads(),
        "step_s": step_s,
        "weights_s": weights_s,
        "credit_s": credit_s,
        "loss_s": loss_s,
        "share_of_grpo_and_ppo": (credit_s["grpo"] + weights_s + loss_s["ppo"]) / (credit_s["grpo"] + step_s),
        "largest_share": (credit_s[worst_credit] + weights_s + loss_s[worst_loss]) / (credit_s[worst_credit] + step_s),
        "largest_share_is": [worst_credit, worst_loss],
    }


def make_groups(num_tokens: int) -> list[TrajectoryGroup]:
    """Groups of eight synthetic trajectories with about `num_tokens` tokens in all."""
    rng = np.random.default_rng(1)
    count = -(-num_tokens // (8 * TURNS * (CONTEXT + REPLY)))
    task = Task(environment="synthetic", prompt=(text_message("user", "q"),), payload={})
    return [
        TrajectoryGroup(
            draw=Draw(index=g, task=task),
            trajectories=tuple(make_random_trajectory(TrajectoryId(draw=g, member=m), rng) for m in range(8)),
        )
        for g in range(count)
    ]


def make_random_trajectory(id: TrajectoryId, rng: np.random.Generator) -> Trajectory:
    """One trajectory with a random outcome."""
    turns = [
        make_turn(
            rng.integers(0, 1000, CONTEXT).tolist(),
            make_completion(rng.integers(0, 1000, REPLY).tolist(), logprobs=rng.normal(-6.9, 0.1, REPLY).tolist()),
            parent=index - 1 if index else None,
            state=f"s{index}{int(rng.integers(3))}",
        )
        for index in range(TURNS)
    ]
    success = float(rng.integers(2))
    reward = Scored(
        total=success,
        parts=(RewardPart(name="success", value=success), RewardPart(name="format", value=float(rng.random()))),
    )
    return make_trajectory(*turns, reward=reward, draw=id.draw, member=id.member)


def take_loss_gradient(name: str, samples: list[Sample]) -> None:
    """The loss of all trained tokens and its gradient with respect to their log-probabilities."""
    old = torch.from_numpy(np.concatenate([s.behavior_logprobs[s.loss_mask] for s in samples]))
    counts = torch.tensor([int(s.loss_mask.sum()) for s in samples])
    policy = (old + 0.01).requires_grad_()
    inputs = LossInputs(
        policy_logprobs=policy,
        old_logprobs=old,
        behavior_logprobs=old,
        advantages=torch.from_numpy(np.concatenate([s.advantages[s.loss_mask] for s in samples])),
        sequence=torch.arange(len(samples)).repeat_interleave(counts),
    )
    build_loss(name)(inputs).losses.mean().backward()


def median_seconds(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median over `rounds` rounds, after one that does not count."""
    action()
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


# ------------------------------------------------------------------------------------------------ learning


def measure_learning(arm: str, seed: int, output: str, overrides: list[str]) -> tuple[Path, dict[str, Any]]:
    """Train one arm; returns its run folder, held-out success and curve."""
    given = [f"run.seed={seed}", f"run.output={output}", f"run.name={arm}", *COMMON, *ARMS[arm], *overrides]
    run = run_train(load_config([RECIPE], given), resume=None, display=False)
    print(run, file=sys.stderr)
    plain = [s for s in load_summaries(run) if s["name"].count("_") == 1]
    ends = (
        [next(row for row in summary["rows"] if row["kind"] == "all") for summary in (plain[0], plain[-1])]
        if plain
        else []
    )
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    return run, {
        "arm": arm,
        "seed": seed,
        "held_out": ends,
        "curve": [row["rollout/success"] for row in rows],
        "sampled_tokens": sum(row["rollout/sampled_tokens"] for row in rows),
    }


def to_markdown(results: list[dict[str, Any]]) -> str:
    """One line per run; the curve as training success at every fifth of the steps."""
    lines = ["| arm | seed | before RL | after RL | sampled tokens | training success |", "|---|---|---|---|---|---|"]
    for result in results:
        ends = [f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for row in result["held_out"]] or [
            "-",
            "-",
        ]
        curve = result["curve"]
        marks = sorted({round(i * (len(curve) - 1) / 5) for i in range(6)}) if curve else []
        shown = ", ".join(f"{curve[i]:.2f}" for i in marks)
        lines.append(
            f"| {result['arm']} | {result['seed']} | {ends[0]} | {ends[-1]} | {result['sampled_tokens']:,.0f} | "
            f"{shown} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
