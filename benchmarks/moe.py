"""Tabulate how far sampler and trainer of a mixture of experts are apart, with and without the sampler's experts.

    OMP_NUM_THREADS=1 python benchmarks/moe.py [RATE]

A model with random weights (`qwen3_moe`, 4 layers, 8 experts of which a token takes 2) samples 64 replies of 64 tokens
to 16 prompts of 32 in the paged engine. The trainer scores them with the same weights, and after updating them on these
samples (AdamW at RATE, 1e-5 if not given, advantages of 1 and -1): the staleness of a token. Its routers choose again,
or take the recorded experts of the sampled tokens only, or of all tokens including the prompt's.

Columns are mean and largest |trainer - sampler| log-probability in nats for each of the three, and the share of sampled
tokens that routers would have predicted with other experts than the sampler's, in any layer."""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.algorithms.losses.table import build_loss
from turnwise.batching.collate import collate
from turnwise.batching.samples import forget_experts
from turnwise.core.types import (
    UNRECORDED,
    Origin,
    Sample,
    SamplingParams,
    Session,
    TrajectoryId,
    to_experts,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model
from turnwise.training.forward import compute_distribution, replay_experts, score_logprobs
from turnwise.training.policy_step import PolicyLoss, run_policy_step

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": True,
    "initializer_range": 0.1,
}
VOCAB, NUM_REPLIES, NUM_PROMPTS, PROMPT, REPLY = 500, 64, 16, 32, 64
FORMATS = (("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float32"))
UPDATES = (0, 1, 4, 16)


async def sample(model: PreTrainedModel) -> list[Sample]:
    """The engine's replies."""
    engine = PagedEngine(model, max_concurrency=NUM_REPLIES, max_context=PROMPT + REPLY)

    async def reply(index: int) -> Sample:
        group = index % NUM_PROMPTS
        prompt = np.random.default_rng(group).integers(0, VOCAB, PROMPT)
        params = SamplingParams(max_tokens=REPLY, seed=index)
        completion = await engine.generate(to_ids(prompt), params, session=Session(str(group), str(index)))
        before = np.zeros(PROMPT)
        return Sample(
            token_ids=to_ids(np.concatenate([prompt, completion.token_ids])),
            loss_mask=to_mask([False] * PROMPT + [True] * REPLY),
            behavior_logprobs=to_floats(np.concatenate([before, completion.logprobs])),
            advantages=to_floats(np.concatenate([before, np.full(REPLY, 1 - 2 * (index // NUM_PROMPTS % 2))])),
            version_first=0,
            version_last=0,
            origin=Origin(trajectory=TrajectoryId(draw=group, member=index), task_id=str(group)),
            experts=completion.experts,
        )

    samples = await asyncio.gather(*map(reply, range(NUM_REPLIES)))
    await engine.close()
    return list(samples)


def forget_prompts(samples: Sequence[Sample]) -> list[Sample]:
    """The samples with the experts of the sampled tokens only."""
    known = []
    for each in samples:
        assert each.experts is not None
        experts = np.where(each.loss_mask[:-1, None, None], each.experts, UNRECORDED)
        known.append(replace(each, experts=to_experts(experts)))
    return known


def find_gaps(model: PreTrainedModel, samples: Sequence[Sample]) -> np.ndarray:
    """|trainer - sampler| for every sampled token."""
    scores = score_logprobs(model, samples, 1.0, micro_batch_tokens=4096)
    return np.abs(np.concatenate(scores) - np.concatenate([s.behavior_logprobs[s.loss_mask] for s in samples]))


@torch.no_grad()
def find_moved(model: PreTrainedModel, samples: Sequence[Sample]) -> float:
    """The share of sampled tokens predicted with other experts if their routers choose and all others repeat."""
    batch = collate(samples)
    routing = replay_experts(batch)
    assert routing is not None
    compute_distribution(model, batch, 1.0, routing=routing)
    return float(routing.moved[batch.predict_at].float().mean())


def update(model: PreTrainedModel, optimizer: torch.optim.Optimizer, samples: Sequence[Sample], rate: float) -> None:
    """One step of policy gradient on all samples."""
    loss = PolicyLoss(function=build_loss("reinforce", {}), temperature=1.0)
    run_policy_step(model, optimizer, samples, loss=loss, lr=rate, max_grad_norm=1.0, micro_batch_tokens=4096)


def measure(sampler: str, trainer: str, rate: float) -> list[str]:
    """The rows for one pair of number formats."""
    model = build_model("qwen3_moe", SIZES, vocab_size=VOCAB, seed=0, dtype=sampler)
    samples = asyncio.run(sample(model))
    trained = copy.deepcopy(model).to(getattr(torch, trainer))
    optimizer = torch.optim.AdamW(trained.parameters(), lr=rate, weight_decay=0.0)
    rows = []
    for num_updates in range(UPDATES[-1] + 1):
        if num_updates in UPDATES:
            gaps = [
                find_gaps(trained, of_way) for of_way in (forget_experts(samples), forget_prompts(samples), samples)
            ]
            cells = [f"{gap.mean():.1e} | {gap.max():.1e}" for gap in gaps]
            cells = [sampler, trainer, str(num_updates), *cells, f"{find_moved(trained, samples):.1%}"]
            rows.append(f"| {' | '.join(cells)} |")
        update(trained, optimizer, samples, rate)
    return rows


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    rate = float(sys.argv[1]) if len(sys.argv) > 1 else 1e-5
    names = "sampler", "trainer", "updates", "anew", "largest", "replies'", "largest", "all", "largest", "moved"
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for sampler, trainer in FORMATS:
        print(*measure(sampler, trainer, rate), sep="\n", flush=True)


if __name__ == "__main__":
    main()
