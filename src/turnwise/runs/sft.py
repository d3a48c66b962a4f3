"""The supervised warm-up: scripted demonstrations teach the protocol; strategy is left to RL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from turnwise.batching.samples import to_samples
from turnwise.config.run import RunConfig
from turnwise.core.metrics import Metric
from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Sample
from turnwise.rollout.demonstrate import run_demonstration
from turnwise.runs.build import System, set_threads
from turnwise.runs.policy import get_packing
from turnwise.training.optimizer import build_optimizer, compute_lr
from turnwise.training.sft import run_sft_step


def demonstrations(system: System, policy: ScriptedPolicy, count: int) -> list[Sample]:
    """Samples of the demonstrations of training tasks `0 .. count - 1`."""
    config = system.config

    async def collect() -> list[Sample]:
        samples: list[Sample] = []
        for index in range(count):
            trajectory = await run_demonstration(
                system.family.task("train", index),
                policy,
                system.family.build_environment(),
                system.renderer,
                seed=derive_seed(config.run.seed, "demonstration", index),
                max_turns=config.rollout.max_turns,
            )
            samples += to_samples(trajectory)
        return samples

    return asyncio.run(collect())


def batches(samples: Sequence[Sample], size: int, count: int, seed: int) -> Iterator[list[Sample]]:
    """`count` batches: one pass over the samples after another, each in its own order, a pass's last batch filled from
    the next."""
    queue: list[Sample] = []
    epoch = 0
    for _ in range(count):
        while len(queue) < size:
            queue += rng(seed, "demonstration order", epoch).sample(samples, len(samples))
            epoch += 1
        yield queue[:size]
        del queue[:size]


def run_warmup(system: System, report: Callable[[int, dict[str, Metric]], None]) -> None:
    """`sft.steps` optimizer steps on demonstrations of `sft.policy`; `report(step, metrics)` after each."""
    config = system.config
    if not config.sft.steps:
        return
    samples = demonstrations(system, system.family.policy(config.sft.policy), config.sft.num_demonstrations)
    betas = (config.train.beta1, config.train.beta2)
    optimizer = build_optimizer(system.model, lr=config.sft.lr, betas=betas, weight_decay=config.train.weight_decay)
    set_threads(config.train.num_threads)
    for step, batch in enumerate(batches(samples, config.sft.batch_size, config.sft.steps, config.run.seed)):
        metrics = run_sft_step(
            system.model,
            optimizer,
            batch,
            lr=compute_lr(
                step,
                base=config.sft.lr,
                warmup_steps=config.sft.warmup_steps,
                total_steps=config.sft.steps,
                decay="cosine",
            ),
            max_grad_norm=config.train.max_grad_norm,
            **get_packing(config),
        )
        report(step + 1, metrics)


def first_rl_task(config: RunConfig) -> int:
    """Index of the first training task RL uses: demonstrations and RL never share a task."""
    return config.sft.num_demonstrations if config.sft.steps else 0


def run_sft(config: RunConfig, *, display: bool) -> Path:
    """Only the warm-up, as a run of its own: trains, evaluates, leaves a checkpoint `train` can start from."""
    from turnwise.runs.train import run_train

    return run_train(
        config.model_copy(update={"train": config.train.model_copy(update={"steps": 0})}), resume=None, display=display
    )
