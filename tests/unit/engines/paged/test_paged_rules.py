"""Windows, soft caps, sinks and heads whose keys and values differ in size: the engine samples what the trainer scores,
in every bit on a CPU, and what transformers computes alone."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from every_model import build_tiny
from transformers import PreTrainedModel

from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.models.attention import register_attention
from turnwise.models.check import choose_path, lay_packed
from turnwise.models.experts import prepare_experts
from turnwise.models.forward import compute_logits
from turnwise.models.invariant import InvariantAttention
from turnwise.models.paths import is_fast

register_attention()
NAMES = ("mistral", "gemma2", "gemma3_text", "gpt_oss", "deepseek_v3")
"""A window; a cap and windows; windows in some layers; sinks and windows; latent attention."""
EXACT = ("mistral", "gemma2", "gemma3_text")
"""Dense models; the products of these mixtures' experts are transformers' own."""
Replies = list[tuple[list[int], Completion]]


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    built = build_tiny(request.param)
    prepare_experts(built, torch.device("cpu"))
    chosen = choose_path(built)
    assert is_fast(chosen)
    return chosen


def draw(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(6, 80, count).tolist()


def crowd(engine: PagedEngine | LocalEngine, members: int = 5) -> Replies:
    """Conversations of three turns that begin alike, past every window."""

    async def converse(member: int) -> Replies:
        ids, found = [*draw(99, 20), *draw(member // 2, 7)], []
        for turn in range(3):
            params = SamplingParams(max_tokens=6, seed=10 * member + turn)
            reply = await engine.generate(to_ids(ids), params, session=Session(str(member), "0"))
            found.append((ids, reply))
            ids = [*ids, *reply.token_ids.tolist(), *draw(10 * member + turn, 9)]
        return found

    async def run() -> list[Replies]:
        return await asyncio.gather(*(converse(member) for member in range(members)))

    return [each for turns in asyncio.run(run()) for each in turns]


def score(model: PreTrainedModel, replies: Replies, attention: Any = InvariantAttention) -> np.ndarray:
    """Log-probabilities of all sampled tokens as the trainer's exact mode computes them."""
    sequences = [torch.tensor([*prompt, *reply.token_ids.tolist()]) for prompt, reply in replies]
    runs, places = lay_packed(sequences)
    with torch.no_grad():
        logits, _ = compute_logits(model, runs, torch.arange(len(runs.token_ids)), attention=attention)
    parts = []
    for (prompt, _), ids, place in zip(replies, sequences, places, strict=True):
        rows = logits[place[len(prompt) - 1 : -1]].log_softmax(-1)
        parts.append(rows.gather(1, ids[len(prompt) :, None])[:, 0].numpy())
    return np.concatenate(parts)


def flatten(replies: Replies) -> np.ndarray:
    return np.concatenate([reply.logprobs for _, reply in replies])


@pytest.mark.parametrize("changes", [{}, {"max_batch_tokens": 9}, {"max_concurrency": 2, "page_size": 16}])
def test_samples_have_the_bits_of_the_trainers_exact_scores(model: PreTrainedModel, changes: dict[str, Any]) -> None:
    settings = {"max_concurrency": 8, "max_context": 160, "fused": False, **changes}
    replies = crowd(PagedEngine(model, **settings))  # type: ignore[arg-type]
    scores, sampled = score(model, replies), flatten(replies)
    if model.config.model_type in EXACT:
        assert np.array_equal(scores, sampled)
    assert np.abs(scores - sampled).max() < 1e-4


@pytest.mark.parametrize("kind", ["fused", "flex", "local"])
def test_every_way_of_sampling_agrees(model: PreTrainedModel, kind: str) -> None:
    settings: dict[str, Any] = {"max_concurrency": 8, "max_context": 160}
    engine: PagedEngine | LocalEngine
    if kind == "local":
        engine = LocalEngine(model, **settings)
    else:
        engine = PagedEngine(model, **settings, attention="flex" if kind == "flex" else "gather")
    assert kind != "fused" or engine.is_fused == (model.config.model_type == "mistral")  # type: ignore[union-attr]
    replies = crowd(engine, members=3)
    assert np.abs(score(model, replies) - flatten(replies)).max() < 1e-4


def test_scores_are_those_of_transformers_alone(model: PreTrainedModel) -> None:
    replies = crowd(PagedEngine(model, max_concurrency=8, max_context=160), members=2)
    alone = build_tiny(model.config.model_type)
    expected = []
    for prompt, reply in replies:
        ids = torch.tensor([*prompt, *reply.token_ids.tolist()])
        with torch.no_grad():
            logprobs = alone(input_ids=ids[None], use_cache=False).logits[0].log_softmax(-1)
        expected.append(logprobs[len(prompt) - 1 : -1].gather(1, ids[len(prompt) :, None])[:, 0].numpy())
    assert np.abs(np.concatenate(expected) - flatten(replies)).max() < 1e-4
