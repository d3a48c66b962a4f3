"""Measure what an adapter costs and saves compared with full weights, on this machine, as JSON on standard output.

    python benchmarks/lora.py [--size 2M | --path DIRECTORY] [--dtype float32] [--rank 16] [--rounds 3]

One thread, and processor seconds, which other programs disturb less than the wall clock; the contenders take turns
within a round, the first round does not count, and medians are reported. The adapter is on all linear layers but the
output layer and adds something (its B is not 0).

sample     64 requests in groups of 8, prompts of 64 tokens, 32 sampled tokens each: the packed decoder on full weights,
           the packed decoder with the adapter merged, and the modules with and without the adapter
adopt      the engine packs new weights and computes its checksums
step       one policy step on 16 samples of 96 tokens, of them 32 trained
bytes      gradients and AdamW's moments, and the checkpoint's files but for the tokenizer's
parity     differences of log-probabilities between the engine and the trainer on what it sampled, in nats"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine import SIZES
from transformers import PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.core.types import Completion, Origin, Sample, SamplingParams, Session, TrajectoryId, to_floats, to_ids
from turnwise.core.types import to_mask as mask_of
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model, load_model
from turnwise.models.lora import add_adapter, copy_model, list_adapter, save_adapter
from turnwise.training.forward import score_logprobs
from turnwise.training.optimizer import build_optimizer, list_trained
from turnwise.training.parity import compute_parity
from turnwise.training.policy_step import PolicyLoss, run_policy_step

PROMPT, NEW, GROUPS, GROUP_SIZE = 64, 32, 8, 8
LOSS = PolicyLoss(function=build_loss("ppo"), temperature=1.0)


def build(arguments: argparse.Namespace) -> PreTrainedModel:
    """The base model."""
    if arguments.path:
        return load_model(arguments.path, dtype=arguments.dtype)
    vocab_size, sizes = SIZES[arguments.size]
    config = {**sizes, "num_key_value_heads": sizes["num_attention_heads"], "tie_word_embeddings": True}
    return build_model("qwen3", config, vocab_size=vocab_size, seed=0, dtype=arguments.dtype)


def adapt(model: PreTrainedModel, rank: int) -> PreTrainedModel:
    """Attach an adapter that adds about a hundredth of a layer's output."""
    add_adapter(model, rank=rank, alpha=2.0 * rank, dropout=0.0, target_modules="all-linear", base="", seed=1)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in list_adapter(model).items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=2e-4, generator=generator)
    return model


def list_prompts(vocab_size: int) -> list[np.ndarray]:
    """One prompt per group."""
    return [to_ids(np.random.default_rng(group).integers(0, vocab_size, PROMPT)) for group in range(GROUPS)]


def sample(model: PreTrainedModel, *, fused: bool) -> list[tuple[np.ndarray, Completion]]:
    """Prompts and completions of all groups, from a new engine."""
    engine = PagedEngine(model, max_concurrency=GROUPS * GROUP_SIZE, max_context=PROMPT + NEW, fused=fused)

    async def run() -> list[tuple[np.ndarray, Completion]]:
        jobs = [
            (prompt, engine.generate(prompt, SamplingParams(max_tokens=NEW, seed=m), session=Session(str(g), str(m))))
            for g, prompt in enumerate(list_prompts(model.config.vocab_size))
            for m in range(GROUP_SIZE)
        ]
        done = await asyncio.gather(*(job for _, job in jobs))
        await engine.close()
        return [(prompt, each) for (prompt, _), each in zip(jobs, done, strict=True)]

    return asyncio.run(run())


def adopt(model: PreTrainedModel) -> None:
    """Do the work of an engine when weights change."""
    engine = PagedEngine(model, max_concurrency=1, max_context=PROMPT, fused=True)

    async def run() -> None:
        await engine.adopt(1)
        await engine.close()

    asyncio.run(run())


def to_sample(member: int, prompt: np.ndarray, completion: Completion) -> Sample:
    """The sample of one completion, with an advantage of 1 or -1."""
    count = len(completion.token_ids)
    mask = np.arange(len(prompt) + count) >= len(prompt)
    return Sample(
        token_ids=to_ids(np.concatenate([prompt, completion.token_ids])),
        loss_mask=mask_of(mask),
        behavior_logprobs=to_floats(np.concatenate([np.zeros(len(prompt)), completion.logprobs])),
        advantages=to_floats(np.where(mask, 1.0 - 2 * (member % 2), 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=member), task_id=""),
    )


def measure(contenders: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median processor seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, run in contenders.items():
            began = time.process_time()
            run()
            seconds[name].append(time.process_time() - began)
    return {name: round(statistics.median(values[1:]), 4) for name, values in seconds.items()}


def count_bytes(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of gradients and moments of the trained weights."""
    gradients = sum(p.numel() * p.element_size() for p in list_trained(model).values())
    return gradients + sum(v.numel() * v.element_size() for s in optimizer.state.values() for v in s.values())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="2M")
    parser.add_argument("--path", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    full = build(arguments)
    adapted = adapt(copy_model(full), arguments.rank)
    sampling = measure(
        {
            "full, packed": partial(sample, full, fused=True),
            "adapter, packed": partial(sample, adapted, fused=True),
            "full, modules": partial(sample, full, fused=False),
            "adapter, modules": partial(sample, adapted, fused=False),
        },
        arguments.rounds,
    )
    adopting = measure({"full": partial(adopt, full), "adapter": partial(adopt, adapted)}, arguments.rounds)
    parity = {}
    for name, model, fused in (
        ("full, packed", full, True),
        ("adapter, packed", adapted, True),
        ("adapter, modules", adapted, False),
    ):
        samples = [to_sample(i, prompt, each) for i, (prompt, each) in enumerate(sample(model, fused=fused))]
        scores = score_logprobs(model, samples, 1.0, micro_batch_tokens=2048)
        recorded = np.concatenate([s.behavior_logprobs[s.loss_mask] for s in samples])
        gap = compute_parity(np.concatenate(scores), recorded)
        parity[name] = {"mean": float(gap.mean), "largest": float(gap.max)}
    optimizers, steps = {}, {}
    for name, model in (("full", full), ("adapter", adapted)):
        optimizers[name] = build_optimizer(model, lr=1e-9, betas=(0.9, 0.95), weight_decay=0.0)
        steps[name] = partial(
            run_policy_step,
            model,
            optimizers[name],
            samples[:16],
            loss=LOSS,
            lr=1e-9,
            max_grad_norm=1.0,
            micro_batch_tokens=2048,
        )
    stepping = measure(steps, arguments.rounds)
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model, save in (("full", full, full.save_pretrained), ("adapter", adapted, None)):
            path = Path(folder) / name
            path.mkdir()
            save(path) if save else save_adapter(model, path)
            files[name] = sum(file.stat().st_size for file in path.iterdir())
    print(
        json.dumps(
            {
                "parameters": sum(p.numel() for p in full.parameters()),
                "trained": sum(p.numel() for p in list_adapter(adapted).values()),
                "sample_s": sampling,
                "adopt_s": adopting,
                "step_s": stepping,
                "training_bytes": {n: count_bytes(m, optimizers[n]) for n, m in (("full", full), ("adapter", adapted))},
                "checkpoint_bytes": files,
                "parity": parity,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
