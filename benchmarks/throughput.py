"""Measure the throughput of one recipe on this machine, as JSON on standard output.

    python benchmarks/throughput.py [RECIPE ...] [a.b=value ...]

Measures, interleaved over `ROUNDS` rounds after one that does not count: rollout (sampled tokens per second, and all
tokens computed), training (tokens forward and backward per second), and seconds per step by phase. As a limit of the
same machine in the same rounds, a plain packed forward pass over the same trajectories without sampling, tools or
bookkeeping: the ratio shows the extra cost of the engine's decoding. Figures depend on other load on the machine;
compare ratios."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from turnwise.batching.collate import collate
from turnwise.batching.pack import plan_micro_batches
from turnwise.batching.samples import to_samples
from turnwise.building.objectives import build_policy_loss
from turnwise.building.resolved import resolve
from turnwise.building.trainer import build_trainer
from turnwise.config.load import load_config
from turnwise.core.types import Draw
from turnwise.credit.assignment import compute_advantages, to_credit_trajectories
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import num_parameters
from turnwise.models.threads import set_threads
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.runs.build import build_system, fit_to_machine
from turnwise.runs.sft import run_warmup
from turnwise.runs.weights import build_weight_sync
from turnwise.training.forward import compute_logprobs
from turnwise.training.optimizer import build_optimizer
from turnwise.training.policy_step import run_policy_step

ROUNDS = 5
DEFAULT_RECIPE = Path(__file__).parent.parent / "recipes" / "search_r1" / "tiny.toml"
WARMUP = ["sft.steps=60", "sft.num_demonstrations=1024"]
"""A warm-up long enough for replies of realistic length."""


async def measure() -> dict[str, Any]:
    """Measure, and return the figures."""
    files = [Path(a) for a in sys.argv[1:] if "=" not in a] or [DEFAULT_RECIPE]
    recipe = load_config(files, WARMUP + [a for a in sys.argv[1:] if "=" in a])
    config = fit_to_machine(resolve(recipe)).config
    system = build_system(config)
    built = build_trainer(system.resolved, system.model, system.tokenizer)
    trainer = TrainerThread(built, num_threads=config.train.num_threads)
    await run_warmup(system, trainer, lambda step, metrics: None)
    trainer.close()
    sync, engine = build_weight_sync(system), system.engine.engine
    if not isinstance(engine, PagedEngine):
        raise SystemExit("only engine.kind='paged' counts the tokens it computes")
    optimizer = build_optimizer(system.model, lr=1e-9, betas=(0.9, 0.95), weight_decay=0.0)
    credit, loss = resolve(config).build_credit(), build_policy_loss(resolve(config))
    rows = []
    for number in range(ROUNDS + 1):
        await sync.publish(number + 1)
        first = 10_000 + number * 1000
        draws = [
            Draw(index=index, task=system.family.task("train", index))
            for index in range(first, first + config.rollout.tasks_per_step)
        ]
        computed = engine.num_computed_tokens
        started = time.perf_counter()
        groups = await system.worker("train").run_groups(draws, group_size=config.rollout.group_size)
        rollout_s = time.perf_counter() - started
        computed = engine.num_computed_tokens - computed
        sampled = sum(t.num_sampled_tokens for g in groups for t in g.trajectories)
        advantages = compute_advantages(credit, groups, to_credit_trajectories(groups))
        attempts = {t.id: t for group in groups for t in group.trajectories}
        samples = [sample for key, turns in advantages.items() for sample in to_samples(attempts[key], turns)]
        total = sum(len(s.token_ids) for s in samples)
        set_threads(config.engine.num_threads)
        started = time.perf_counter()
        with torch.inference_mode():
            for indices in plan_micro_batches([len(s.token_ids) for s in samples], config.train.micro_batch_tokens):
                compute_logprobs(system.model, collate([samples[i] for i in indices]), config.rollout.temperature)
        forward_s = time.perf_counter() - started
        set_threads(config.train.num_threads)
        started = time.perf_counter()
        run_policy_step(
            system.model,
            optimizer,
            samples,
            loss=loss,
            lr=1e-9,
            max_grad_norm=1.0,
            micro_batch_tokens=config.train.micro_batch_tokens,
        )
        train_s = time.perf_counter() - started
        rows.append(
            {
                "rollout_sampled_tokens_per_s": sampled / rollout_s,
                "rollout_computed_tokens_per_s": computed / rollout_s,
                "rollout_computed_per_unique_token": computed / total,
                "train_tokens_per_s": total / train_s,
                "rollout_s": rollout_s,
                "train_s": train_s,
                "forward_only_s": forward_s,
                "rollout_over_forward_only": rollout_s / forward_s,
                "tokens_per_step": total,
            }
        )
    await system.engine.close()
    kept = rows[1:]
    return {
        "recipe": [str(f.name) for f in files],
        "parameters": num_parameters(system.model),
        "trajectories_per_step": config.rollout.tasks_per_step * config.rollout.group_size,
        "threads": {"engine": config.engine.num_threads, "train": torch.get_num_threads()},
        "rounds": ROUNDS,
        "median": {key: statistics.median(row[key] for row in kept) for key in kept[0]},
        "min": {key: min(row[key] for row in kept) for key in kept[0]},
        "max": {key: max(row[key] for row in kept) for key in kept[0]},
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure()), indent=1))
