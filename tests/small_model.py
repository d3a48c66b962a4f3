"""What the tests of the paged engine share: a small model's shape, a scenario, and how far two results are apart."""

import asyncio

import numpy as np

from turnwise.core.types import Completion, SamplingParams, Session
from turnwise.engines.paged import PagedEngine

VOCAB = 97
CONFIG = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": True,
}
MIXTURE = {
    **CONFIG,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "initializer_range": 0.2,
}
"""Of `qwen3_moe`: weights large enough that routers tell tokens apart."""


def distance(ours: list[Completion], theirs: list[Completion]) -> float:
    """Largest difference of log-probabilities; the tokens must be equal."""
    assert [c.token_ids.tolist() for c in ours] == [c.token_ids.tolist() for c in theirs]
    return max(float(np.abs(a.logprobs - b.logprobs).max()) for a, b in zip(ours, theirs, strict=True))


def run_two_of_three(engine: PagedEngine, prompt: np.ndarray, *, max_tokens: int, cancel: bool) -> list[Completion]:
    """Replies of the last two of a group of three; the first is cancelled in the middle or not. No page may be held
    afterwards."""

    async def three() -> list[Completion]:
        jobs = [
            asyncio.create_task(
                engine.generate(prompt, SamplingParams(max_tokens=max_tokens, seed=i), session=Session("g", str(i)))
            )
            for i in range(3)
        ]
        while engine.statistics().num_sampled_tokens < 9:
            await asyncio.sleep(0)
        if cancel:
            jobs[0].cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        return [job.result() for job in jobs[1:]]

    done = asyncio.run(three())
    assert engine.statistics().num_held_pages == 0
    return done
