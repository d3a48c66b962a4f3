"""Compare shared-prefix training with computing every trajectory by itself: tokens computed, seconds per step,
gradients, as JSON.

    OMP_NUM_THREADS=1 python benchmarks/shared_prefix.py [--share 0.7] [--length 512] [--groups 4] [--size 2M 15M]
    [--rounds 5]

Groups of `--group-size` trajectories of `--length` tokens whose first `--share` is the same within a group (and, with
`--common`, a part of that the same in all groups, as a tool prompt is). The rest is sampled and trains. Both sides take
whole GRPO steps (forward, loss, backward, clipping, AdamW) of the same samples from the same random weights; they take
turns within each round, in changing order, and the ratio is the median of the rounds' ratios of processor seconds.
Gradients are compared in the same run in float64, as
|difference| / |gradient|, with the same samples on the smallest size.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model, num_parameters
from turnwise.training.optimizer import build_optimizer
from turnwise.training.policy_step import PolicyLoss, run_policy_step

VOCAB = 4096
SIZES: dict[str, dict[str, Any]] = {
    "2M": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 8, "num_attention_heads": 4},
    "15M": {"hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 8, "num_attention_heads": 6},
}
"""Approximate numbers of parameters; the rest of a configuration follows from these."""
LOSS = PolicyLoss(function=build_loss("grpo"), temperature=1.0)
SIDES = {"alone": False, "shared": True}


def make_samples(options: argparse.Namespace) -> list[Sample]:
    """Trajectories with random tokens, in random order within the step, because nothing should depend on the order."""
    rng = np.random.default_rng(0)
    num_shared = round(options.share * options.length)
    num_common = round(options.common * options.length)
    common = rng.integers(0, VOCAB, num_common)
    samples = []
    for group in range(options.groups):
        prompt = np.concatenate([common, rng.integers(0, VOCAB, num_shared - num_common)])
        for member in range(options.group_size):
            ids = np.concatenate([prompt, rng.integers(0, VOCAB, options.length - num_shared)])
            mask = np.arange(options.length) >= num_shared
            samples.append(
                Sample(
                    token_ids=to_ids(ids),
                    loss_mask=to_mask(mask),
                    behavior_logprobs=to_floats(np.where(mask, -np.log(VOCAB), 0.0)),
                    advantages=to_floats(np.where(mask, rng.normal(), 0.0)),
                    version_first=0,
                    version_last=0,
                    origin=Origin(trajectory=TrajectoryId(draw=group, member=member), task_id=f"task{group}"),
                )
            )
    return [samples[i] for i in rng.permutation(len(samples))]


def build(size: str, length: int, dtype: str) -> PreTrainedModel:
    """A model with random weights."""
    shape = {
        **SIZES[size],
        "head_dim": 32 if size == "2M" else 64,
        "tie_word_embeddings": True,
        "max_position_embeddings": length,
    }
    return build_model("qwen3", {**shape, "num_key_value_heads": 2}, vocab_size=VOCAB, seed=0, dtype=dtype)


def take_step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    samples: list[Sample],
    options: argparse.Namespace,
    shared: bool,
) -> dict[str, float]:
    """Seconds and counts of one optimizer step."""
    wall, processor = time.perf_counter(), time.process_time()
    metrics = run_policy_step(
        model,
        optimizer,
        samples,
        loss=LOSS,
        lr=1e-5,
        max_grad_norm=1.0,
        micro_batch_tokens=options.micro_batch_tokens,
        shared_prefix=shared,
    )
    return {
        "seconds": time.perf_counter() - wall,
        "processor_seconds": time.process_time() - processor,
        "computed_tokens": float(metrics["train/computed_tokens"].value or 0),
    }


def compare_gradients(samples: list[Sample], options: argparse.Namespace) -> dict[str, float]:
    """|difference| / |gradient| in float64, and the norm itself."""
    model = build(options.size[0], options.length, "float64")
    start = copy.deepcopy(model.state_dict())
    gradients = []
    for shared in SIDES.values():
        model.load_state_dict(start)
        # Plain descent at rate 1: a step subtracts the gradient from the weights.
        run_policy_step(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            samples,
            loss=LOSS,
            lr=1.0,
            max_grad_norm=1e9,
            micro_batch_tokens=options.micro_batch_tokens,
            shared_prefix=shared,
        )
        gradients.append(torch.cat([(start[name] - p.detach()).reshape(-1) for name, p in model.named_parameters()]))
    difference, norm = float((gradients[0] - gradients[1]).norm()), float(gradients[0].norm())
    return {"relative_difference": difference / norm, "norm": norm}


def measure(size: str, samples: list[Sample], options: argparse.Namespace) -> dict[str, Any]:
    """Measure one size: medians, and the ratio round by round."""
    model = build(size, options.length, "float32")
    optimizer = build_optimizer(model, lr=1e-5, betas=(0.9, 0.95), weight_decay=0.0)
    rows: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for round_number in range(options.rounds + 1):
        for side in SIDES if round_number % 2 else reversed(SIDES):
            rows[side].append(take_step(model, optimizer, samples, options, SIDES[side]))
    kept = {side: of_side[1:] for side, of_side in rows.items()}  # the first round warms up
    ratios = [
        alone["processor_seconds"] / shared["processor_seconds"] for alone, shared in zip(*kept.values(), strict=True)
    ]
    medians = {
        side: {key: statistics.median(row[key] for row in of_side) for key in of_side[0]}
        for side, of_side in kept.items()
    }
    return {
        "parameters": num_parameters(model),
        **medians,
        "computed_tokens_ratio": medians["alone"]["computed_tokens"] / medians["shared"]["computed_tokens"],
        "step_time_ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.7, help="part of each trajectory that its group has in common")
    parser.add_argument("--common", type=float, default=0.0, help="part of it that all groups have in common")
    parser.add_argument("--length", type=int, default=512, help="tokens of a trajectory")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--size", nargs="+", choices=sorted(SIZES), default=["2M"])
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count")
    parser.add_argument("--micro-batch-tokens", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    samples = make_samples(options)
    result = {
        "settings": {key: value for key, value in vars(options).items() if key != "size"},
        "load": os.getloadavg()[0],
        "gradient": compare_gradients(samples, options),
        "sizes": {size: measure(size, samples, options) for size in options.size},
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
