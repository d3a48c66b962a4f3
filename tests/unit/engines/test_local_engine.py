"""The local engine: exact against a plain forward pass, each token computed once, independent of timing and company."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from small_model import CONFIG, VOCAB
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, FinishReason, SamplingParams, Session, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.models.attention import PackedAttention
from turnwise.models.build import build_model


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return build_model(request.param, CONFIG, vocab_size=VOCAB, seed=1)


def build(model: PreTrainedModel, **changes: int) -> LocalEngine:
    shape: dict[str, Any] = {"max_concurrency": 8, "max_context": 160, **changes}
    return LocalEngine(model, **shape, decode=lambda ids: "".join(chr(32 + i) for i in ids))


def prompt_of(seed: int, length: int = 20) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


async def converse(
    engine: LocalEngine, seed: int, turns: int = 3, delay_s: float = 0.0, **changes: float
) -> list[Completion]:
    """A conversation whose observations are random tokens."""
    ids, completions = prompt_of(seed), []
    for turn in range(turns):
        params = SamplingParams(**{"max_tokens": 6, "seed": 1000 * seed + turn, **changes})  # type: ignore[arg-type]
        completion = await engine.generate(to_ids(ids), params, session=Session(str(seed), "0"))
        completions.append(completion)
        ids = [*ids, *completion.token_ids.tolist(), *prompt_of(7 * seed + turn, 9)]
        await asyncio.sleep(delay_s * (seed % 3))
    await engine.release(Session(str(seed), "0"))
    return completions


def same(a: list[Completion], b: list[Completion]) -> bool:
    pairs = list(zip(a, b, strict=True))
    return all(np.array_equal(x.token_ids, y.token_ids) and np.array_equal(x.logprobs, y.logprobs) for x, y in pairs)


def test_logprobs_are_those_of_a_plain_eager_forward(model: PreTrainedModel) -> None:
    temperature = 0.7
    (completion,) = asyncio.run(converse(build(model), 3, turns=1, temperature=temperature))
    ids = [*prompt_of(3), *completion.token_ids.tolist()]
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0] / temperature
    finally:
        model.set_attn_implementation("turnwise")
    expected = logits.log_softmax(-1)[torch.arange(19, 25), torch.tensor(ids[20:])]
    assert completion.logprobs.tolist() == pytest.approx(expected.tolist(), abs=2e-6)


def test_packed_attention_does_not_leak_between_sequences(model: PreTrainedModel) -> None:
    lengths = [5, 1, 12]
    sequences = [prompt_of(i, n) for i, n in enumerate(lengths)]
    with torch.no_grad():
        packed = model(
            input_ids=torch.tensor([[token for sequence in sequences for token in sequence]]),
            position_ids=torch.tensor([[p for n in lengths for p in range(n)]]),
            use_cache=False,
            attention_plan=PackedAttention(lengths),
        ).logits[0]
        for sequence, part in zip(sequences, packed.split(lengths), strict=True):
            alone = model(
                input_ids=torch.tensor([sequence]), use_cache=False, attention_plan=PackedAttention([len(sequence)])
            ).logits[0]
            assert torch.allclose(part, alone, atol=1e-5)


def test_what_a_request_samples_does_not_depend_on_company_slots_or_timing(model: PreTrainedModel) -> None:
    async def crowd(concurrency: int, seeds: list[int], delay_s: float, batch: int) -> dict[int, list[Completion]]:
        engine = build(model, max_concurrency=concurrency, max_batch_tokens=batch)
        results = await asyncio.gather(*(converse(engine, seed, delay_s=delay_s) for seed in seeds))
        return dict(zip(seeds, results, strict=True))

    crowded = asyncio.run(crowd(30, list(range(30)), 0.0, 8192))
    slow = asyncio.run(crowd(3, list(reversed(range(8))), 0.004, 8192))
    alone = asyncio.run(crowd(1, [5], 0.0, 8192))
    assert all(same(crowded[seed], slow[seed]) for seed in slow)
    assert same(crowded[5], alone[5])


def test_chunked_prefill_gives_the_same_tokens(model: PreTrainedModel) -> None:
    whole = asyncio.run(converse(build(model), 4))
    chunked = asyncio.run(converse(build(model, max_batch_tokens=7), 4))
    assert [c.token_ids.tolist() for c in whole] == [c.token_ids.tolist() for c in chunked]


def test_every_token_is_computed_once_across_turns(model: PreTrainedModel) -> None:
    engine = build(model)
    completions = asyncio.run(converse(engine, 2, turns=4))
    # Prompt 20, three observations of 9, four replies; the last sampled token of all is never run.
    unique = 20 + 3 * 9 + sum(len(c.token_ids) for c in completions) - 1
    assert engine.num_computed_tokens == unique


def test_a_new_version_never_reads_an_old_cache(model: PreTrainedModel) -> None:
    async def two_turns(engine: LocalEngine, change: bool) -> Completion:
        first = await engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=4), session=Session("s", "0"))
        if change:
            with torch.no_grad():
                model.get_input_embeddings().weight.mul_(1.5)
            await engine.adopt(1)
        ids = [*prompt_of(1), *first.token_ids.tolist(), 5, 6]
        return await engine.generate(
            to_ids(ids), SamplingParams(max_tokens=4, seed=9), session=Session("s" if change else "fresh", "0")
        )

    kept = {k: v.clone() for k, v in model.state_dict().items()}
    try:
        second = asyncio.run(two_turns(build(model), change=True))
        # The same request on a fresh engine under the changed weights: prompt ids come from the old first turn.
        ids = [*prompt_of(1), *_first_turn(model, kept), 5, 6]
        fresh = asyncio.run(
            build(model).generate(to_ids(ids), SamplingParams(max_tokens=4, seed=9), session=Session("x", "0"))
        )
        assert np.array_equal(second.token_ids, fresh.token_ids)
        assert np.array_equal(second.logprobs, fresh.logprobs)
        assert (second.version_first, second.version_last) == (1, 1)
    finally:
        model.load_state_dict(kept)


def _first_turn(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> list[int]:
    changed = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(weights)
    completion = asyncio.run(
        build(model).generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=4), session=Session("s", "0"))
    )
    model.load_state_dict(changed)
    return completion.token_ids.tolist()


def test_stop_tokens_and_stop_strings_end_the_completion(model: PreTrainedModel) -> None:
    async def run(**changes: Any) -> Completion:
        params = SamplingParams(**{"max_tokens": 12, "seed": 5, **changes})
        return await build(model).generate(to_ids(prompt_of(1)), params, session=Session("s", "0"))

    free = asyncio.run(run())
    assert free.finish_reason is FinishReason.LENGTH
    assert len(free.token_ids) == 12
    ids = free.token_ids.tolist()
    cut = next(i for i, t in enumerate(ids) if t not in ids[:i] and i > 2)
    by_id = asyncio.run(run(stop_token_ids=(ids[cut],)))
    assert by_id.finish_reason is FinishReason.STOP
    assert by_id.token_ids.tolist() == ids[: cut + 1]
    by_text = asyncio.run(run(stop=(chr(32 + ids[cut - 1]) + chr(32 + ids[cut]),)))
    assert by_text.finish_reason is FinishReason.STOP
    assert by_text.token_ids.tolist() == ids[: cut + 1]


@pytest.mark.parametrize(
    ("ids", "params", "words"),
    [
        ([], {"max_tokens": 4}, "empty prompt"),
        ([1, VOCAB], {"max_tokens": 4}, "outside the vocabulary"),
        ([1] * 159, {"max_tokens": 4}, "engine.max_context=160"),
        ([1], {"max_tokens": 0}, "max_tokens=0"),
    ],
)
def test_a_bad_request_is_refused_alone(
    model: PreTrainedModel, ids: list[int], params: dict[str, int], words: str
) -> None:
    async def run() -> tuple[object, Completion]:
        engine = build(model)
        bad, good = await asyncio.gather(
            engine.generate(to_ids(ids), SamplingParams(**params), session=Session("bad", "0")),  # type: ignore[arg-type]
            engine.generate(to_ids([1, 2]), SamplingParams(max_tokens=3), session=Session("good", "0")),
            return_exceptions=True,
        )
        return bad, good  # type: ignore[return-value]

    bad, good = asyncio.run(run())
    assert isinstance(bad, EngineError)
    assert words in str(bad)
    assert isinstance(good, Completion)
    assert len(good.token_ids) == 3


def test_weights_that_give_nan_fail_the_request_and_the_engine_lives_on(model: PreTrainedModel) -> None:
    kept = {k: v.clone() for k, v in model.state_dict().items()}
    engine = build(model)
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = float("nan")
    try:

        async def run() -> list[object]:
            return list(
                await asyncio.gather(
                    engine.generate(to_ids([7, 7]), SamplingParams(max_tokens=3), session=Session("nan", "0")),
                    return_exceptions=True,
                )
            )

        (failure,) = asyncio.run(run())
        assert isinstance(failure, EngineError)
        assert "not finite" in str(failure)
    finally:
        model.load_state_dict(kept)
    asyncio.run(engine.adopt(1))
    completion = asyncio.run(
        engine.generate(to_ids([1, 2]), SamplingParams(max_tokens=3), session=Session("fine", "0"))
    )
    assert np.isfinite(completion.logprobs).all()


def test_more_conversations_than_slots_wait_their_turn(model: PreTrainedModel) -> None:
    async def run() -> int:
        engine = build(model, max_concurrency=2)
        results = await asyncio.gather(*(converse(engine, seed, turns=2) for seed in range(9)))
        return len(results)

    assert asyncio.run(run()) == 9


def test_a_cancelled_request_leaves_the_others_alone(model: PreTrainedModel) -> None:
    async def run() -> Completion:
        engine = build(model)
        doomed = asyncio.create_task(
            engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=100), session=Session("doomed", "0"))
        )
        await asyncio.sleep(0.01)
        doomed.cancel()
        await asyncio.gather(doomed, return_exceptions=True)
        await engine.release(Session("doomed", "0"))
        return await engine.generate(to_ids(prompt_of(2)), SamplingParams(max_tokens=5), session=Session("next", "0"))

    assert len(asyncio.run(run()).token_ids) == 5
