"""Compare training steps on 1, 2 and 4 ranks with those of one process: `python benchmarks/ranks.py [--rounds 5]`.

All four trainers exist at once and take their steps in turn, in another order every round, so that each meets the same
load; ratios compare steps of the same round. Every process computes on one thread. Memory is the proportional set size:
what several processes share is divided among them. Prints JSON.

With --publication it prints instead the seconds of a step of two ranks that trains nothing (comparison of weights,
checksums, rows to the trainer's process), of ranks that see its memory and of ranks that send their rows, here and
under Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.batching.collate import Packing
from turnwise.core.batch import TrainingBatch
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.hosts.host import Host
from turnwise.hosts.local import LocalHost
from turnwise.hosts.ray_cluster import RayCluster
from turnwise.models.build import build_model
from turnwise.training.local import LocalTrainer, TrainerSettings
from turnwise.training.optimizer import Schedule
from turnwise.training.placement import WHOLE, Placement
from turnwise.training.policy_step import PolicyLoss
from turnwise.training.ranks.memory import SharedMemory
from turnwise.training.ranks.trainer import RankedTrainer

SHAPE = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
VOCAB, NUM_SAMPLES, LENGTH = 2000, 16, 128
RANKS = (1, 2, 4)


def build(model: PreTrainedModel, placement: Placement = WHOLE) -> LocalTrainer:
    """A trainer of policy gradient; micro-batches of four samples."""
    flat = Schedule(base=1e-5, warmup_steps=0, total_steps=1, decay="none")
    settings = TrainerSettings(
        schedule=flat,
        warmup=flat,
        betas=(0.9, 0.95),
        weight_decay=0.0,
        max_grad_norm=1.0,
        packing=Packing(micro_batch_tokens=4 * LENGTH, shared_prefix=False),
        temperature=1.0,
    )
    loss = PolicyLoss(function=build_loss("grpo"), temperature=1.0)
    return LocalTrainer(model, None, settings, loss=loss, placement=placement)


def build_for_rank(recipe: Mapping[str, Any], model: PreTrainedModel, placement: Placement) -> LocalTrainer:
    """See `training.ranks.plan.RankPlan.build`."""
    return build(model, placement)


def build_ranked(model: PreTrainedModel, size: int, host: Host | None = None) -> RankedTrainer:
    """The same trainer on ranks."""
    return RankedTrainer(model, None, f"{Path(__file__).stem}:build_for_rank", {}, num_ranks=size, host=host)


def build_policy(scale: int = 1) -> PreTrainedModel:
    """A policy with the same weights every time, `scale` times as wide."""
    wide = {
        **SHAPE,
        "hidden_size": scale * SHAPE["hidden_size"],
        "intermediate_size": scale * SHAPE["intermediate_size"],
    }
    return build_model("qwen3", wide, vocab_size=VOCAB, seed=0)


def make_batch() -> TrainingBatch:
    """Random tokens, half of which train."""
    samples = []
    for index in range(NUM_SAMPLES):
        rng = np.random.default_rng(index)
        mask = np.arange(LENGTH) >= LENGTH // 2
        samples.append(
            Sample(
                token_ids=to_ids(rng.integers(0, VOCAB, LENGTH)),
                loss_mask=to_mask(mask),
                behavior_logprobs=to_floats(np.where(mask, -np.log(VOCAB), 0.0)),
                advantages=to_floats(np.where(mask, rng.normal(), 0.0)),
                version_first=0,
                version_last=0,
                origin=Origin(trajectory=TrajectoryId(draw=index, member=0), task_id=f"task{index}"),
            )
        )
    whole = tuple(range(NUM_SAMPLES))
    return TrainingBatch(step=1, objective="policy_gradient", samples=tuple(samples), updates=(whole,))


def read_memory(pid: int) -> int:
    """Proportional set size of a process, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def measure_publication(rounds: int) -> None:
    """Print a table."""
    print("| parameters | ranks | rows | median s |\n|---|---|---|---|")
    describe = SharedMemory.describe

    def hide(memory: SharedMemory) -> dict[str, Any]:
        """Pretends that no rank can see the memory."""
        return {**describe(memory), "pid": 0}

    for scale in (1, 3):
        for place in ("local", "Ray"):
            host: Host = RayCluster("local", num_actors=4, cpus=0, strategy="PACK") if place == "Ray" else LocalHost()
            for rows in ("shared memory", "sent"):
                if rows == "sent":
                    SharedMemory.describe = hide  # type: ignore[assignment, method-assign]
                trainer = build_ranked(build_policy(scale), 2, host)
                nothing = replace(make_batch(), updates=())
                trainer.step(nothing)
                SharedMemory.describe = describe  # type: ignore[method-assign]
                assert trainer.group.num_far == (2 if rows == "sent" else 0)
                seconds = []
                for _ in range(rounds):
                    began = time.perf_counter()
                    trainer.step(nothing)
                    seconds.append(time.perf_counter() - began)
                trainer.close()
                count = sum(parameter.numel() for parameter in trainer.model.parameters())
                print(f"| {count / 1e6:.1f} M | {place} | {rows} | {statistics.median(seconds):.2f} |", flush=True)
            host.close()


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--publication", action="store_true")
    options = parser.parse_args()
    rounds = options.rounds
    torch.set_num_threads(1)
    if options.publication:
        measure_publication(rounds)
        return
    batch = make_batch()
    trainers: dict[str, LocalTrainer | RankedTrainer] = {"one process": build(build_policy())}
    for size in RANKS:
        trainers[f"{size} ranks"] = build_ranked(build_policy(), size)
    losses = {name: trainer.step(batch).metrics["train/loss"].value for name, trainer in trainers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    names = list(trainers)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            began = time.perf_counter()
            trainers[name].step(batch)
            seconds[name].append(time.perf_counter() - began)
    alone = seconds["one process"]
    table = {}
    for name, trainer in trainers.items():
        ratios = [first / own for first, own in zip(alone, seconds[name], strict=True)]
        table[name] = {
            "seconds_per_step": round(statistics.median(seconds[name]), 3),
            "steps_per_second_to_one_process": [
                round(value, 2) for value in (min(ratios), statistics.median(ratios), max(ratios))
            ],
            "first_loss_difference": abs(losses[name] - losses["one process"]),
        }
        if isinstance(trainer, RankedTrainer):
            table[name]["mib_per_rank"] = [round(read_memory(pid) / 2**20) for pid in trainer.group.pids]
            trainer.close()
    parameters = sum(p.numel() for p in build_policy().parameters())
    print(
        json.dumps({"cores": os.cpu_count(), "parameters": parameters, "rounds": rounds, "trainers": table}, indent=1)
    )


if __name__ == "__main__":
    main()
