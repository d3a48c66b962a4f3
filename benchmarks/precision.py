"""Measure how much of a small learning rate reaches the weights, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/precision.py [--lr 1e-6] [--steps 20]

One model takes the same policy-gradient steps in four ways: in float32, in bfloat16 and in float16 as `model.dtype`
trains them (float32 masters), and in bfloat16 with AdamW on the weights themselves, which is the control. Prints for
each: the share of weights that differ from the start, among those that engines sample with and among those that the
optimizer steps; how far the latter have moved on average, relative to float32; the share of the last update
(`train/changed_share`); and seconds per step."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model
from turnwise.training.masters import find_master
from turnwise.training.optimizer import build_optimizer
from turnwise.training.policy_step import PolicyLoss, run_policy_step

VOCAB = 2048
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "tie_word_embeddings": True,
}
"""Weights are drawn with transformers' deviation of 0.02, near that of pretrained models."""
ARMS = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float16", "bfloat16_without_masters": "bfloat16"}


def make_samples(step: int, count: int = 16, length: int = 128) -> list[Sample]:
    """Random trajectories with advantages of either sign; every other token trains."""
    samples = []
    for member in range(count):
        rng = np.random.default_rng([step, member])
        mask = np.arange(length) % 2 == 1
        samples.append(
            Sample(
                token_ids=to_ids(rng.integers(0, VOCAB, length)),
                loss_mask=to_mask(mask),
                behavior_logprobs=to_floats(np.where(mask, -np.log(VOCAB), 0.0)),
                advantages=to_floats(np.where(mask, rng.normal(), 0.0)),
                version_first=step,
                version_last=step,
                origin=Origin(trajectory=TrajectoryId(draw=0, member=member), task_id="t"),
            )
        )
    return samples


def measure(arm: str, lr: float, num_steps: int) -> dict[str, float]:
    """Train one arm from the start."""
    model = build_model("qwen3", SIZES, vocab_size=VOCAB, seed=0, dtype=ARMS[arm])
    settings: dict[str, Any] = {"lr": lr, "betas": (0.9, 0.95), "weight_decay": 0.0}
    if arm == "bfloat16_without_masters":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), fused=True, **settings)
    else:
        optimizer = build_optimizer(model, **settings)
    before = [(p.detach().clone(), find_master(p).detach().clone()) for p in model.parameters()]
    loss, seconds, share = PolicyLoss(function=build_loss("reinforce"), temperature=1.0), [], 0.0
    for step in range(num_steps):
        started = time.perf_counter()
        metrics = run_policy_step(
            model,
            optimizer,
            make_samples(step),
            loss=loss,
            lr=lr,
            max_grad_norm=1.0,
            micro_batch_tokens=1024,
        )
        seconds.append(time.perf_counter() - started)
        share = metrics["train/changed_share"].value
    return describe(model, before) | {"last_update_changed": share, "seconds_per_step": statistics.median(seconds)}


def describe(model: PreTrainedModel, before: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    """How the weights have moved since `before`."""
    sampled = stepped = total = 0
    moved = 0.0
    for parameter, (first, first_master) in zip(model.parameters(), before, strict=True):
        master = find_master(parameter).detach()
        sampled += int((parameter.detach() != first).sum())
        stepped += int((master != first_master).sum())
        moved += float((master.double() - first_master.double()).abs().sum())
        total += parameter.numel()
    return {
        "sampled_weights_moved": sampled / total,
        "stepped_weights_moved": stepped / total,
        "distance": moved / total,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lr", type=float, default=1e-6)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    arms = {arm: measure(arm, given.lr, given.steps) for arm in ARMS}
    for row in arms.values():
        row["distance_to_float32"] = row["distance"] / arms["float32"]["distance"]
    rounded = {arm: {name: float(f"{value:.4g}") for name, value in row.items()} for arm, row in arms.items()}
    print(json.dumps({"lr": given.lr, "steps": given.steps, "arms": rounded}, indent=1))


if __name__ == "__main__":
    main()
