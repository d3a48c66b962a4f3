"""Compare the costs of the generic and the fast path on one model that both compute, as JSON on standard output.

    OMP_NUM_THREADS=1 python benchmarks/paths.py [--size 2M] [--rounds 5]

Processor seconds of one thread, which other programs disturb less than the wall clock. Both paths take turns within a
round, and the first round does not count; reports medians, and the median, minimum and maximum of the ratios by round.

sample  16 conversations in groups of 4 with one prompt of 64 tokens: three turns of 24 sampled tokens, and observations
        of 16 tokens between them
step    one policy step on the samples of these conversations; the fast path computes what they share once
alone   the same step with shared prefixes switched off"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from engine import SIZES
from transformers import PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.core.types import (
    Origin,
    Sample,
    SamplingParams,
    Session,
    TrajectoryId,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model
from turnwise.models.forward import can_share
from turnwise.models.paths import ModelPath, set_path
from turnwise.training.optimizer import build_optimizer
from turnwise.training.policy_step import PolicyLoss, run_policy_step

GROUPS, MEMBERS, TURNS, PROMPT, REPLY, OBSERVATION = 4, 4, 3, 64, 24, 16


def build(size: str, kind: str) -> PreTrainedModel:
    """A model of the Qwen3 architecture that takes the path `kind`."""
    vocab_size, sizes = SIZES[size]
    config = {**sizes, "num_key_value_heads": sizes["num_attention_heads"], "tie_word_embeddings": True}
    model = build_model("qwen3", config, vocab_size=vocab_size, seed=0)
    return model if kind == "fast" else set_path(model, ModelPath(kind="generic", reason="for comparison"))


def draw(seed: int, count: int, vocab_size: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab_size, count).tolist()


def sample(model: PreTrainedModel) -> list[Sample]:
    """All conversations, from a new engine."""
    vocab_size = model.config.vocab_size
    context = PROMPT + TURNS * (REPLY + OBSERVATION)
    engine = PagedEngine(model, max_concurrency=GROUPS * MEMBERS, max_context=context)

    async def converse(group: int, member: int) -> Sample:
        ids, session = draw(group, PROMPT, vocab_size), Session(str(group), str(member))
        mask, logprobs = [False] * PROMPT, [0.0] * PROMPT
        for turn in range(TURNS):
            params = SamplingParams(max_tokens=REPLY, seed=100 * group + 10 * member + turn)
            reply = await engine.generate(to_ids(ids), params, session=session)
            seen = draw(1000 + 100 * group + 10 * member + turn, OBSERVATION, vocab_size) if turn < TURNS - 1 else []
            ids += [*reply.token_ids.tolist(), *seen]
            mask += [True] * REPLY + [False] * len(seen)
            logprobs += [*reply.logprobs.tolist(), *[0.0] * len(seen)]
        await engine.release(session)
        return Sample(
            token_ids=to_ids(ids),
            loss_mask=to_mask(mask),
            behavior_logprobs=to_floats(logprobs),
            advantages=to_floats(np.where(mask, 1.0 - 2 * (member % 2), 0.0)),
            version_first=0,
            version_last=0,
            origin=Origin(trajectory=TrajectoryId(draw=group, member=member), task_id=""),
        )

    async def run() -> list[Sample]:
        found = await asyncio.gather(*(converse(g, m) for g in range(GROUPS) for m in range(MEMBERS)))
        await engine.close()
        return found

    return asyncio.run(run())


def step(model: PreTrainedModel, samples: list[Sample], *, shared_prefix: bool) -> None:
    """One policy step that changes the weights by a negligible amount."""
    run_policy_step(
        model,
        build_optimizer(model, lr=1e-9, betas=(0.9, 0.95), weight_decay=0.0),
        samples,
        loss=PolicyLoss(function=build_loss("ppo"), temperature=1.0),
        lr=1e-9,
        max_grad_norm=1.0,
        micro_batch_tokens=4096,
        shared_prefix=shared_prefix and can_share(model),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="2M", choices=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    models = {kind: build(given.size, kind) for kind in ("fast", "generic")}
    samples = sample(models["fast"])
    works: dict[str, Callable[[PreTrainedModel], Any]] = {
        "sample": sample,
        "step": lambda model: step(model, samples, shared_prefix=True),
        "alone": lambda model: step(model, samples, shared_prefix=False),
    }
    result: dict[str, Any] = {"size": given.size}
    for name, work in works.items():
        seconds: dict[str, list[float]] = {kind: [] for kind in models}
        for _ in range(given.rounds + 1):
            for kind, model in models.items():
                began = time.process_time()
                work(model)
                seconds[kind].append(time.process_time() - began)
        ratios = [b / a for a, b in zip(seconds["fast"][1:], seconds["generic"][1:], strict=True)]
        result[name] = {
            **{kind: round(statistics.median(times[1:]), 4) for kind, times in seconds.items()},
            "ratio": [round(f(ratios), 2) for f in (statistics.median, min, max)],
        }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
