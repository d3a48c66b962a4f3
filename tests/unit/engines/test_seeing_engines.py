"""Engines that see: what they sample is what the model computes for these pictures, whatever was sampled before."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from served_seeing import change_tower, lay_out, list_gaps
from tiny_seeing import build_seeing, draw
from transformers import PreTrainedModel

from turnwise.config.engine_kinds.table import ENGINE_KINDS
from turnwise.core.errors import ConfigError, EngineError
from turnwise.core.protocols import PausableEngine, SeeingEngine
from turnwise.core.types import Completion, Prompt, SamplingParams, Session, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.engines.registry import build_engine
from turnwise.engines.settings import EngineSettings
from turnwise.engines.workers import WorkerEngine
from turnwise.models.vision.eyes import Eyes, place_eyes
from turnwise.pictures.store import PictureStore

SESSION = Session("g", "0")
RED, BLUE = draw(1), draw(2, 45, 30)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def go_on(prompt: Prompt, completion: Completion, more: Prompt) -> Prompt:
    start = len(prompt.token_ids) + len(completion.token_ids)
    ids = np.concatenate([prompt.token_ids, completion.token_ids, more.token_ids])
    return Prompt(token_ids=to_ids(ids), images=(*prompt.images, *(span.shift(start) for span in more.images)))


def gap(model: PreTrainedModel, prompt: Prompt, completion: Completion) -> float:
    return max(list_gaps(model, prompt, completion))


def sharpen(model: PreTrainedModel) -> None:
    """Make weights so large that pictures change what is sampled."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)


@pytest.mark.parametrize("kind", ["paged", "local"])
@pytest.mark.parametrize("learns", [True, False])
def test_features_of_older_weights_are_not_used(kind: str, learns: bool) -> None:
    """An engine samples from a copy without gradients where the trainer steps meanwhile."""
    model, _, eyes = build_seeing()
    sharpen(model)
    model.requires_grad_(learns)
    prompt, params = lay_out(eyes, [5, 6], RED, [7]), SamplingParams(max_tokens=6, seed=3)

    async def play() -> None:
        engine: Any = build_engine(kind, model, common=EngineSettings(max_concurrency=2, max_context=64), options={})
        try:
            before = await engine.generate_seeing(prompt, params, session=SESSION)
            change_tower(model)
            await engine.adopt(1)
            after = await engine.generate_seeing(prompt, params, session=SESSION)
            assert gap(model, prompt, after) < 1e-4
            assert gap(model, prompt, before) > 1e-2
        finally:
            await engine.close()

    asyncio.run(play())


@pytest.mark.parametrize("kind", ["smolvlm", "llava_clip", "qwen3_vl"])
def test_the_local_engine_samples_what_the_model_computes(kind: str) -> None:
    model, _, eyes = build_seeing(kind)
    sharpen(model)
    params = SamplingParams(max_tokens=6, seed=3)

    async def play() -> None:
        engine = LocalEngine(model, max_concurrency=2, max_context=400, max_batch_tokens=13)  # pictures are cut
        try:
            prompt = lay_out(eyes, [5, 6], RED, [7])
            first = await engine.generate_seeing(prompt, params, session=SESSION)
            assert gap(model, prompt, first) < 1e-4
            # The second turn computes only what it adds, and sees the first picture through the cache.
            longer = go_on(prompt, first, lay_out(eyes, [8], BLUE, [9]))
            before = engine.num_computed_tokens
            second = await engine.generate_seeing(longer, params, session=SESSION)
            assert gap(model, longer, second) < 1e-4
            added = len(longer.token_ids) - len(prompt.token_ids) - len(first.token_ids)
            assert engine.num_computed_tokens - before == added + 1 + len(second.token_ids) - 1
            # The same ids around another picture share nothing.
            other = lay_out(eyes, [5, 6], draw(9), [7])
            assert other.token_ids.tolist() == prompt.token_ids.tolist()
            third = await engine.generate_seeing(other, params, session=SESSION)
            assert gap(model, other, third) < 1e-4
            assert gap(model, prompt, third) > 1e-3
        finally:
            await engine.close()

    asyncio.run(play())


def test_workers_read_pictures_from_the_store_and_sample_the_same(tmp_path: Path) -> None:
    model, _, eyes = build_seeing("qwen3_vl")
    sharpen(model)
    shared = Eyes(eyes.sight, PictureStore(tmp_path), eyes.layout)
    place_eyes(model, shared)
    params = SamplingParams(max_tokens=6, seed=3)
    prompt = lay_out(shared, [5, 6], RED, [7], BLUE, [8])

    async def ask(engine: Any) -> Completion:
        try:
            return await engine.generate_seeing(prompt, params, session=SESSION)
        finally:
            await engine.close()

    alone = asyncio.run(ask(LocalEngine(model, max_concurrency=2, max_context=400)))
    apart = asyncio.run(ask(WorkerEngine(model, num_workers=1, max_concurrency=2, max_context=400)))
    assert apart.token_ids.tolist() == alone.token_ids.tolist()
    assert np.allclose(apart.logprobs, alone.logprobs, atol=1e-5)


@pytest.mark.parametrize("kind", ENGINE_KINDS)
def test_an_engine_of_text_is_refused_before_anything_is_sampled(kind: str) -> None:
    model, _, _ = build_seeing()
    common = EngineSettings(max_concurrency=2, max_context=64)
    options = {"urls": ["http://127.0.0.1:9"]} if kind == "server" else {}
    if ENGINE_KINDS[kind].reads_images:
        return
    with pytest.raises(ConfigError, match=r"reads pictures, but engine.kind='server' reads text only; use 'paged' or"):
        build_engine(kind, model, common=common, options=options)


@pytest.mark.parametrize("kind", ["paged", "local"])
def test_a_model_of_text_refuses_pictures(kind: str) -> None:
    from small_model import CONFIG, VOCAB

    from turnwise.models.build import build_model

    model = build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)
    _, _, eyes = build_seeing()
    prompt = lay_out(eyes, [5], RED)

    async def ask() -> None:
        engine = build_engine(kind, model, common=EngineSettings(max_concurrency=2, max_context=64), options={})
        assert isinstance(engine, SeeingEngine)
        assert isinstance(engine, PausableEngine)
        try:
            with pytest.raises(EngineError, match=r"shows 1 picture.*, but the model reads text only"):
                await engine.generate_seeing(prompt, SamplingParams(max_tokens=1), session=SESSION)
        finally:
            await engine.close()

    asyncio.run(ask())
