"""Measure what a second team of OpenMP helpers costs a training step: `python benchmarks/thread_teams.py [--rounds 4]`.

A process trains on a thread that uses every core. In the arm "alone" the main thread computes on one core
(`models.threads.leave_cores_to_executors`); in the arm "two teams" it has computed on every core once, and its helpers
stay. Each arm is a separate process, in changing order; ratios compare the median steps of the same round. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np
import torch

from turnwise.algorithms.losses.table import build_loss
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model
from turnwise.models.threads import build_executor, leave_cores_to_executors
from turnwise.training.optimizer import build_optimizer
from turnwise.training.policy_step import PolicyLoss, run_policy_step

SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
"""The shape of recipes/search_r1/tiny.toml."""
VOCAB, NUM_SAMPLES, LENGTH, STEPS = 1000, 256, 60, 12


def make_sample(rng: np.random.Generator, index: int) -> Sample:
    """Random tokens, half of which train."""
    mask = np.arange(LENGTH) >= LENGTH // 2
    return Sample(
        token_ids=to_ids(rng.integers(0, VOCAB, LENGTH)),
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(np.where(mask, -np.log(VOCAB), 0.0)),
        advantages=to_floats(np.where(mask, rng.normal(), 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=index, member=0), task_id=f"task{index}"),
    )


def measure(two_teams: bool) -> float:
    """Median seconds of a step."""
    if two_teams:
        (torch.randn(600, 600) @ torch.randn(600, 600)).exp().sum()
    else:
        leave_cores_to_executors()
    model = build_model("qwen3", {**SHAPE, "num_key_value_heads": 2}, vocab_size=VOCAB, seed=0, dtype="float32")
    optimizer = build_optimizer(model, lr=1e-5, betas=(0.9, 0.95), weight_decay=0.0)
    rng = np.random.default_rng(0)
    samples = [make_sample(rng, index) for index in range(NUM_SAMPLES)]
    loss = PolicyLoss(function=build_loss("grpo"), temperature=1.0)

    def step() -> float:
        started = time.perf_counter()
        run_policy_step(model, optimizer, samples, loss=loss, lr=1e-5, max_grad_norm=1.0, micro_batch_tokens=16384)
        return time.perf_counter() - started

    with build_executor(0, "trainer") as executor:
        return statistics.median([executor.submit(step).result() for _ in range(STEPS)][2:])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--arm", choices=["alone", "two teams"], help="measure one, in this process")
    options = parser.parse_args()
    if options.arm:
        print(measure(options.arm == "two teams"))
        return
    rows = []
    for number in range(options.rounds):
        row: dict[str, float] = {}
        for arm in ("alone", "two teams") if number % 2 else ("two teams", "alone"):
            done = subprocess.run([sys.executable, __file__, "--arm", arm], capture_output=True, text=True, check=True)
            row[arm] = float(done.stdout)
        rows.append(row)
    ratios = [row["two teams"] / row["alone"] for row in rows]
    print(json.dumps({"rounds": rows, "two teams over alone": [min(ratios), statistics.median(ratios), max(ratios)]}))


if __name__ == "__main__":
    main()
