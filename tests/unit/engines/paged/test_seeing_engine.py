"""Conversations with pictures: what an engine samples is what the trainer scores, for every family, however cut."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tiny_seeing import CONFIGS, GENERIC, build_seeing, draw
from transformers import PreTrainedModel

from turnwise.batching.collate import UNTRAINED
from turnwise.core.errors import EngineError
from turnwise.core.keys import Span
from turnwise.core.types import (
    Completion,
    ImagePart,
    Prompt,
    Sample,
    SamplingParams,
    Session,
    to_floats,
    to_ids,
    to_mask,
)
from turnwise.engines.paged.engine import PagedEngine
from turnwise.models.build import build_model
from turnwise.models.check import choose_path
from turnwise.models.paths import ModelPath, find_path, set_path
from turnwise.models.vision.eyes import Eyes
from turnwise.models.vision.tower import freeze_tower
from turnwise.training.forward import score_logprobs

REPLY = 5


def append(prompt: Prompt, eyes: Eyes, *parts: int | ImagePart) -> Prompt:
    """The prompt with tokens and pictures after it."""
    ids, spans = [prompt.token_ids], list(prompt.images)
    for part in parts:
        length = sum(map(len, ids))
        if isinstance(part, int):
            ids.append(to_ids([part]))
            continue
        eyes.pictures.put(part)
        assert eyes.layout is not None
        shown = eyes.layout.lay_out(part)
        ids.append(shown.token_ids)
        spans += [span.shift(length) for span in shown.images]
    return Prompt(token_ids=to_ids(np.concatenate(ids)), images=tuple(spans))


def extend(prompt: Prompt, completion: Completion) -> Prompt:
    """The prompt with what was sampled after it."""
    return Prompt(token_ids=to_ids(np.concatenate([prompt.token_ids, completion.token_ids])), images=prompt.images)


def to_sample(prompt: Prompt, completions: Sequence[tuple[int, Completion]]) -> Sample:
    """One sample in which every completion, at its start, trains."""
    mask, logprobs = np.zeros(len(prompt.token_ids), bool), np.zeros(len(prompt.token_ids))
    for start, completion in completions:
        mask[start : start + len(completion.token_ids)] = True
        logprobs[start : start + len(completion.token_ids)] = completion.logprobs
    return Sample(
        token_ids=prompt.token_ids,
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(logprobs),
        advantages=to_floats(np.zeros(len(mask))),
        version_first=0,
        version_last=0,
        origin=UNTRAINED.origin,
        images=prompt.images,
    )


async def converse(engine: PagedEngine, eyes: Eyes, name: str, seeds: Sequence[int]) -> Sample:
    """A turn for every picture, and one more without; the whole as a sample."""
    prompt, completions = Prompt(token_ids=to_ids([40, 41])), []
    for turn, seed in enumerate([*seeds, None]):
        parts = [42] if seed is None else [draw(seed), 43]
        prompt = append(prompt, eyes, *parts)
        params = SamplingParams(max_tokens=REPLY, seed=turn)
        completion = await engine.generate_seeing(prompt, params, session=Session("g", name))
        completions.append((len(prompt.token_ids), completion))
        prompt = extend(prompt, completion)
    await engine.release(Session("g", name))
    return to_sample(prompt, completions)


def build_engine(model: PreTrainedModel, **changes: int) -> PagedEngine:
    options = {"max_concurrency": 4, "max_context": 512, "max_batch_tokens": 64, "page_size": 16, **changes}
    return PagedEngine(model, **options)  # type: ignore[arg-type]


def gap(model: PreTrainedModel, samples: Sequence[Sample], *, shared: bool) -> float:
    """The largest difference between what was sampled and what the trainer scores."""
    scored = score_logprobs(model, samples, 1.0, micro_batch_tokens=100_000, shared_prefix=shared)
    return max(
        float(np.abs(np.asarray(column, np.float64) - sample.behavior_logprobs[sample.loss_mask]).max())
        for column, sample in zip(scored, samples, strict=True)
    )


@pytest.mark.parametrize("kind", [*CONFIGS, *GENERIC])
def test_three_pictures_in_four_turns_are_sampled_as_they_are_scored(kind: str) -> None:
    model, _, eyes = build_seeing(kind, visible=kind in GENERIC)
    choose_path(model)
    # Steps of 7 tokens cut pictures; two conversations begin with the same picture, one with another.
    engine = build_engine(model, max_batch_tokens=7)

    async def play() -> list[Sample]:
        plans = {"a": (0, 1, 2), "b": (0, 3, 1), "c": (4, 1, 2)}
        return list(await asyncio.gather(*(converse(engine, eyes, name, seeds) for name, seeds in plans.items())))

    samples = asyncio.run(play())
    assert gap(model, samples, shared=False) < 5e-5
    assert gap(model, samples, shared=True) < 5e-5
    counts = engine.statistics()
    assert counts.num_encoded_pictures == 5  # each of them once
    assert counts.num_reused_tokens > 0
    assert counts.num_image_places > 0


def test_encoding_ahead_samples_the_same() -> None:
    model, _, eyes = build_seeing()

    async def play(engine: PagedEngine) -> list[Sample]:
        plans = {"a": (0, 1, 2), "b": (0, 3, 1), "c": (4, 1, 2)}
        samples = await asyncio.gather(*(converse(engine, eyes, name, seeds) for name, seeds in plans.items()))
        await engine.close()
        return list(samples)

    inline, ahead = (PagedEngine(model, max_concurrency=4, max_context=512, encode_ahead=on) for on in (False, True))
    for one, other in zip(asyncio.run(play(inline)), asyncio.run(play(ahead)), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.behavior_logprobs.tolist() == other.behavior_logprobs.tolist()
    assert ahead.statistics().num_encoded_pictures == 5


@pytest.mark.parametrize("kind", ["smolvlm", *GENERIC])
def test_a_prompt_with_another_picture_of_equal_ids_samples_otherwise(kind: str) -> None:
    model, _, eyes = build_seeing(kind, visible=True)
    choose_path(model)
    engine = build_engine(model)

    async def ask(seed: int, name: str) -> Completion:
        prompt = append(Prompt(token_ids=to_ids([40])), eyes, draw(seed), 41)
        return await engine.generate_seeing(
            prompt, SamplingParams(max_tokens=3, temperature=0.0), session=Session("g", name)
        )

    async def play() -> list[Completion]:
        return [await ask(0, "a"), await ask(1, "b"), await ask(0, "c")]

    first, other, again = asyncio.run(play())
    assert first.logprobs.tolist() != other.logprobs.tolist()
    assert first.logprobs.tolist() == again.logprobs.tolist()


def test_the_generic_path_reads_a_picture_once_per_conversation() -> None:
    model, _, eyes = build_seeing("gemma3", visible=True)
    assert choose_path(model) is model
    engine = build_engine(model)
    samples = [asyncio.run(converse(engine, eyes, name, seeds)) for name, seeds in {"a": (0, 1, 2), "b": (0,)}.items()]
    assert gap(model, samples, shared=False) < 5e-5
    # Three pictures of four places in "a"; "b" begins with the prompt of "a", whose state was kept.
    assert engine.statistics().num_image_places == 12
    assert find_path(model).extends


def test_a_cache_that_takes_single_tokens_only_reads_the_conversation_again() -> None:
    model, _, eyes = build_seeing("gemma3", visible=True)
    set_path(model, ModelPath(kind="generic", reason="test", extends=False))
    engine = build_engine(model)
    assert gap(model, [asyncio.run(converse(engine, eyes, "a", (0, 1, 2)))], shared=False) < 5e-5
    # Once per turn: one, two, three and three pictures of four places.
    assert engine.statistics().num_image_places == 4 * (1 + 2 + 3 + 3)


def test_a_cache_that_takes_no_tokens_reads_everything_for_every_token() -> None:
    model, _, eyes = build_seeing("gemma3", visible=True)
    set_path(model, ModelPath(kind="generic", reason="test", steps=False))
    engine = build_engine(model)
    assert gap(model, [asyncio.run(converse(engine, eyes, "a", (0,)))], shared=False) < 5e-5
    assert engine.statistics().num_image_places == 4 * 2 * REPLY


def test_the_placeholder_is_never_sampled_and_costs_nothing_where_it_was() -> None:
    model, _, eyes = build_seeing()
    assert eyes.layout is not None
    place = eyes.layout.place_id
    with torch.no_grad():
        model.lm_head.weight[place] += 100.0 * model.lm_head.weight.norm()
    engine = build_engine(model)

    async def play() -> list[Completion]:
        asked = (
            engine.generate_seeing(
                append(Prompt(token_ids=to_ids([40])), eyes, draw(0), 41),
                SamplingParams(max_tokens=20, seed=seed),
                session=Session("g", str(seed)),
            )
            for seed in range(20)
        )
        return list(await asyncio.gather(*asked))

    completions = asyncio.run(play())
    assert all(place not in completion.token_ids for completion in completions)
    # A placeholder that a prompt has outside its spans is an ordinary token: no error, no picture.
    written = to_sample(append(Prompt(token_ids=to_ids([40, place])), eyes, draw(0), 41, 42), [])
    mask = np.zeros(len(written.token_ids), bool)
    mask[-1] = True
    sample = Sample(
        token_ids=written.token_ids,
        loss_mask=to_mask(mask),
        behavior_logprobs=written.behavior_logprobs,
        advantages=written.advantages,
        version_first=0,
        version_last=0,
        origin=UNTRAINED.origin,
        images=written.images,
    )
    assert np.isfinite(score_logprobs(model, [sample], 1.0, micro_batch_tokens=1000)[0]).all()


def test_features_are_forgotten_when_weights_change() -> None:
    model, _, eyes = build_seeing()
    engine = build_engine(model)

    async def play() -> list[Sample]:
        before = await converse(engine, eyes, "a", (0,))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.3)
        await engine.adopt(1)
        return [before, await converse(engine, eyes, "b", (0,))]

    before, after = asyncio.run(play())
    assert gap(model, [after], shared=False) < 5e-5
    assert gap(model, [before], shared=False) > 1e-3
    assert engine.statistics().num_encoded_pictures == 2


def test_a_frozen_tower_encodes_a_picture_once_whatever_the_text_learns() -> None:
    model, _, eyes = build_seeing()
    engine = build_engine(freeze_tower(model))

    async def play() -> Sample:
        await converse(engine, eyes, "a", (0,))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.mul_(1.3)
        await engine.adopt(1)
        return await converse(engine, eyes, "b", (0,))

    assert gap(model, [asyncio.run(play())], shared=False) < 5e-5
    assert engine.statistics().num_encoded_pictures == 1


def test_closing_lets_nobody_wait_for_pictures_that_are_not_encoded() -> None:
    model, _, eyes = build_seeing()
    engine = PagedEngine(model, max_concurrency=4, max_context=512, encode_ahead=True)

    async def play() -> list[Completion | BaseException]:
        asked = [
            asyncio.ensure_future(
                engine.generate_seeing(
                    append(Prompt(token_ids=to_ids([40])), eyes, *(draw(20 * number + at) for at in range(20))),
                    SamplingParams(max_tokens=3),
                    session=Session("g", str(number)),
                )
            )
            for number in range(4)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await engine.close()
        return list(await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60))

    assert all(isinstance(each, EngineError) for each in asyncio.run(play()))


@pytest.mark.parametrize("ahead", [False, True])
def test_a_picture_that_is_gone_fails_its_own_request(ahead: bool) -> None:
    model, _, eyes = build_seeing()
    engine = PagedEngine(model, max_concurrency=4, max_context=512, encode_ahead=ahead)

    async def play() -> list[Completion | BaseException]:
        whole = append(Prompt(token_ids=to_ids([40])), eyes, draw(0), 41)
        lost = Prompt(
            token_ids=whole.token_ids,
            images=tuple(Span(start=each.start, length=each.length, digest="f" * 64) for each in whole.images),
        )
        asked = (
            engine.generate_seeing(prompt, SamplingParams(max_tokens=3), session=Session("g", str(number)))
            for number, prompt in enumerate((whole, lost))
        )
        return list(await asyncio.gather(*asked, return_exceptions=True))

    good, bad = asyncio.run(play())
    assert isinstance(good, Completion)
    assert isinstance(bad, EngineError)
    assert "f" * 12 in str(bad)


def test_a_model_of_text_refuses_pictures() -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = build_model("llama", sizes, vocab_size=300, seed=0)
    engine = build_engine(model)
    prompt = Prompt(token_ids=to_ids([5, 6, 6, 7]), images=(Span(start=1, length=2, digest="a"),))
    with pytest.raises(EngineError, match="shows 1 pictures, but the model reads text only"):
        asyncio.run(engine.generate_seeing(prompt, SamplingParams(max_tokens=3), session=Session("g", "a")))
