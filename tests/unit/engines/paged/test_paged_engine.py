"""The paged engine: exact against the trainer's forward, each token once, any company, memory or chunks."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from small_model import CONFIG, MIXTURE, VOCAB, distance, run_two_of_three
from transformers import PreTrainedModel
from waiting import until, wait_outside

from turnwise.core.errors import EngineError
from turnwise.core.seeds import uniforms
from turnwise.core.types import Completion, FinishReason, Grammar, SamplingParams, Session, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.engines.paged.runner import ModelRunner
from turnwise.engines.sampling import sample_tokens
from turnwise.models.build import build_model
from turnwise.models.invariant import InvariantAttention


@pytest.fixture(scope="module", params=["qwen3", "llama", "gemma", "qwen3_moe"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return build_model(request.param, MIXTURE if request.param == "qwen3_moe" else CONFIG, vocab_size=VOCAB, seed=1)


@pytest.fixture(scope="module")
def qwen() -> PreTrainedModel:
    return build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)


def build(model: PreTrainedModel, **changes: Any) -> PagedEngine:
    settings = {
        "max_concurrency": 8,
        "max_context": 160,
        "decode": lambda ids: "".join(chr(32 + i) for i in ids),
        **changes,
    }
    return PagedEngine(model, **settings)


def prompt_of(seed: int, length: int = 20) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


SYSTEM = prompt_of(99, 50)


async def converse(
    engine: PagedEngine, seed: int, turns: int = 3, delay_s: float = 0.0, observation: int = 9, **changes: Any
) -> list[Completion]:
    """A conversation that begins like every other one and whose observations are random tokens."""
    ids, completions = [*SYSTEM, *prompt_of(seed // 2)], []
    for turn in range(turns):
        params = SamplingParams(**{"max_tokens": 6, "seed": 1000 * seed + turn, **changes})
        completion = await engine.generate(to_ids(ids), params, session=Session(str(seed), "0"))
        completions.append(completion)
        ids = [*ids, *completion.token_ids.tolist(), *prompt_of(7 * seed + turn, observation)]
        await asyncio.sleep(delay_s * (seed % 3))
    await engine.release(Session(str(seed), "0"))
    return completions


def crowd(engine: PagedEngine, seeds: list[int], **changes: Any) -> dict[int, list[Completion]]:
    async def run() -> list[list[Completion]]:
        return await asyncio.gather(*(converse(engine, seed, **changes) for seed in seeds))

    return dict(zip(seeds, asyncio.run(run()), strict=True))


def same(a: list[Completion], b: list[Completion]) -> bool:
    pairs = list(zip(a, b, strict=True))
    return all(np.array_equal(x.token_ids, y.token_ids) and np.array_equal(x.logprobs, y.logprobs) for x, y in pairs)


END = 3
EXACT = [
    ({"temperature": 1.0}, {}),
    ({"temperature": 0.7, "top_p": 0.8}, {"max_batch_tokens": 37}),
    (
        {"temperature": 1.3, "top_k": 20, "stop_token_ids": (END, 4, 5, 6, 7, 8)},
        {"max_batch_tokens": 70, "page_size": 16},
    ),
    ({"temperature": 0.9, "min_p": 0.3, "top_p": 0.95}, {"max_concurrency": 2}),
    ({"temperature": 0.4, "stop_token_ids": (END,)}, {"max_draft_tokens": 8}),
]


@pytest.mark.parametrize(("sampling", "shape"), EXACT)
def test_the_trainers_logits_give_the_same_tokens_and_log_probabilities_in_every_bit(
    model: PreTrainedModel, sampling: dict[str, Any], shape: dict[str, Any]
) -> None:
    """Exact mode: the trainer packs, the engine decodes in any company, with the same random numbers."""
    engine = build(model, fused=False, **{"cache_tokens": 480, **shape})
    results = crowd(engine, [0, 1, 2, 3, 4], **sampling)
    places: list[int] = []
    sequences, params, randoms, recorded = [], [], [], []
    offset = 0
    for seed, completions in results.items():
        ids = [*SYSTEM, *prompt_of(seed // 2)]
        for turn, completion in enumerate(completions):
            each = SamplingParams(max_tokens=6, seed=1000 * seed + turn, **sampling)
            places += range(offset + len(ids) - 1, offset + len(ids) + len(completion.token_ids) - 1)
            params += [each] * len(completion.token_ids)
            randoms += uniforms(each.seed, 6)[: len(completion.token_ids)].tolist()
            recorded += list(zip(completion.token_ids.tolist(), completion.logprobs.tolist(), strict=True))
            ids = [*ids, *completion.token_ids.tolist(), *prompt_of(7 * seed + turn, 9)]
        sequences.append(ids)
        offset += len(ids)
    lengths = [len(s) for s in sequences]
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([[token for s in sequences for token in s]]),
            position_ids=torch.tensor([[p for n in lengths for p in range(n)]]),
            use_cache=False,
            attention_plan=InvariantAttention(lengths),
        ).logits[0]
    token_ids, logprobs = sample_tokens(logits[places], params, torch.tensor(randoms, dtype=torch.float64))
    assert engine.statistics().num_reused_tokens > 0
    assert list(zip(token_ids.tolist(), logprobs.tolist(), strict=True)) == recorded


@pytest.mark.parametrize(
    "changes", [{}, {"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9}, {"stop_token_ids": (END, 5, 6, 7)}]
)
def test_the_plain_engine_samples_the_same(model: PreTrainedModel, changes: dict[str, Any]) -> None:
    async def run() -> list[list[Completion]]:
        engine = LocalEngine(model, max_concurrency=8, max_context=160)
        return await asyncio.gather(*(converse(engine, seed, **changes) for seed in range(4)))  # type: ignore[arg-type]

    plain, paged = asyncio.run(run()), crowd(build(model), list(range(4)), **changes)
    for seed in range(4):
        for a, b in zip(plain[seed], paged[seed], strict=True):
            assert a.token_ids.tolist() == b.token_ids.tolist()
            assert a.logprobs.tolist() == pytest.approx(b.logprobs.tolist(), abs=5e-6)
            assert a.finish_reason is b.finish_reason


@pytest.mark.parametrize("fused", [False, True])
def test_log_probabilities_are_those_of_a_plain_eager_forward(qwen: PreTrainedModel, fused: bool) -> None:
    (completion,) = crowd(build(qwen, fused=fused), [3], turns=1, temperature=0.7)[3]
    ids = [*SYSTEM, *prompt_of(1), *completion.token_ids.tolist()]
    qwen.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            logits = qwen(input_ids=torch.tensor([ids])).logits[0] / 0.7
    finally:
        qwen.set_attn_implementation("turnwise")
    expected = logits.log_softmax(-1)[torch.arange(69, 75), torch.tensor(ids[70:])]
    assert completion.logprobs.tolist() == pytest.approx(expected.tolist(), abs=2e-6)


def test_what_a_request_samples_does_not_depend_on_company_memory_chunks_or_timing(model: PreTrainedModel) -> None:
    reference = crowd(build(model, max_concurrency=30), list(range(20)))
    small = build(model, max_concurrency=8, cache_tokens=352)
    for engine, seeds, changes in (
        (build(model, max_concurrency=1), [5], {}),
        (build(model, max_concurrency=3, page_size=16), [7, 6, 5, 4], {"delay_s": 0.004}),
        (build(model, max_batch_tokens=7, page_size=64), [5, 4, 9], {}),
        (small, list(range(8)), {}),
    ):
        results = crowd(engine, seeds, **changes)
        assert all(same(results[seed], reference[seed]) for seed in seeds)


def test_a_preempted_request_loses_no_token(qwen: PreTrainedModel) -> None:
    # Three pages of 16 shared by two requests that need two each at their start and three at their end.
    def run(cache_tokens: int | None) -> tuple[list[Completion], int]:
        engine = build(qwen, cache_tokens=cache_tokens, page_size=16)

        async def both() -> list[Completion]:
            jobs = [
                engine.generate(
                    to_ids(prompt_of(i, 12)), SamplingParams(max_tokens=36, seed=i), session=Session(str(i), "0")
                )
                for i in range(3)
            ]
            return list(await asyncio.gather(*jobs))

        return asyncio.run(both()), engine.statistics().num_preemptions

    ample, none = run(None)
    short, some = run(96)
    assert none == 0
    assert some > 0
    for a, b in zip(ample, short, strict=True):
        assert (a.token_ids.tolist(), a.logprobs.tolist()) == (b.token_ids.tolist(), b.logprobs.tolist())


def test_every_token_is_computed_once_across_turns_and_members(qwen: PreTrainedModel) -> None:
    engine = build(qwen)
    results = crowd(engine, [2, 3], turns=4)  # two members of one group: both begin with SYSTEM and prompt_of(1)
    sampled = sum(len(c.token_ids) for completions in results.values() for c in completions)
    # Shared beginning of 70 tokens once, plus its last token again for the second member; three observations of 9 each;
    # replies without the last sampled token of each conversation, which never runs.
    assert engine.num_computed_tokens == 70 + 1 + 2 * 3 * 9 + sampled - 2


def test_a_new_version_never_reads_an_old_cache_unless_told_to(qwen: PreTrainedModel) -> None:
    kept = {k: v.clone() for k, v in qwen.state_dict().items()}

    def second(stale: bool, announce: bool) -> tuple[Completion, PagedEngine]:
        qwen.load_state_dict(kept)
        engine = build(qwen, reuse_stale_cache=stale)

        async def run() -> Completion:
            await engine.generate(to_ids(SYSTEM), SamplingParams(max_tokens=2), session=Session("s", "0"))
            with torch.no_grad():
                qwen.get_input_embeddings().weight.mul_(1.5)
            if announce:
                await engine.adopt(4)
            return await engine.generate(
                to_ids([*SYSTEM, 5]), SamplingParams(max_tokens=4, seed=9), session=Session("s", "0")
            )

        return asyncio.run(run()), engine

    try:
        adopted, engine = second(stale=False, announce=True)
        fresh = asyncio.run(
            build(qwen).generate(to_ids([*SYSTEM, 5]), SamplingParams(max_tokens=4, seed=9), session=Session("x", "0"))
        )
        assert adopted.logprobs.tolist() == fresh.logprobs.tolist()
        assert (adopted.version_first, adopted.version_last, engine.statistics().num_stale_tokens) == (4, 4, 0)
        unannounced, _ = second(stale=False, announce=False)
        assert unannounced.logprobs.tolist() == fresh.logprobs.tolist()
        stale, engine = second(stale=True, announce=True)
        assert stale.logprobs.tolist() != fresh.logprobs.tolist()
        assert engine.statistics().num_stale_tokens == 50
    finally:
        qwen.load_state_dict(kept)


def test_a_paused_request_goes_on_under_new_weights_with_its_versions(qwen: PreTrainedModel) -> None:
    kept = {k: v.clone() for k, v in qwen.state_dict().items()}
    engine = build(qwen)

    async def run() -> Completion:
        job = asyncio.create_task(
            engine.generate(to_ids(SYSTEM), SamplingParams(max_tokens=20, seed=3), session=Session("s", "0"))
        )
        while engine.statistics().num_sampled_tokens < 5:
            await asyncio.sleep(0)
        with pytest.raises(EngineError, match="pause the engine first"):
            await engine.adopt(1)
        assert await engine.pause() == 0
        await asyncio.sleep(0.01)
        assert engine.statistics().num_sampled_tokens == 5
        with torch.no_grad():
            qwen.get_input_embeddings().weight.mul_(1.2)
        await engine.adopt(1)
        await engine.resume()
        return await job

    try:
        done = asyncio.run(run())
        assert done.versions is not None
        assert done.versions.tolist() == [0] * 5 + [1] * 15
        assert (done.version_first, done.version_last) == (0, 1)
        # What was sampled after the change is what a fresh engine samples after those five tokens, random numbers 5 to
        # 19.
        prefix = [*SYSTEM, *done.token_ids[:5].tolist()]
        with torch.no_grad():
            logits = qwen(
                input_ids=torch.tensor([[*prefix, *done.token_ids[5:].tolist()]]),
                use_cache=False,
                attention_plan=InvariantAttention([70]),
            ).logits[0]
        expected = logits.log_softmax(-1)[torch.arange(54, 69), torch.from_numpy(done.token_ids[5:].astype(np.int64))]
        assert done.logprobs[5:].tolist() == pytest.approx(expected.tolist(), abs=2e-6)
    finally:
        qwen.load_state_dict(kept)


def test_stop_tokens_and_stop_strings_end_the_completion(qwen: PreTrainedModel) -> None:
    def run(**changes: Any) -> Completion:
        params = SamplingParams(**{"max_tokens": 12, "seed": 5, **changes})
        return asyncio.run(build(qwen).generate(to_ids(prompt_of(1)), params, session=Session("s", "0")))

    free = run()
    assert free.finish_reason is FinishReason.LENGTH
    ids = free.token_ids.tolist()
    assert len(ids) == 12
    cut = next(i for i, t in enumerate(ids) if t not in ids[:i] and i > 2)
    for stopped in (run(stop_token_ids=(ids[cut],)), run(stop=(chr(32 + ids[cut - 1]) + chr(32 + ids[cut]),))):
        assert stopped.finish_reason is FinishReason.STOP
        assert stopped.token_ids.tolist() == ids[: cut + 1]


def test_top_k_of_one_is_greedy(qwen: PreTrainedModel) -> None:
    def run(params: SamplingParams) -> list[int]:
        return asyncio.run(
            build(qwen).generate(to_ids(prompt_of(1)), params, session=Session("s", "0"))
        ).token_ids.tolist()

    assert run(SamplingParams(max_tokens=9, top_k=1, seed=8)) == run(SamplingParams(max_tokens=9, temperature=0.0))


def together(engine: PagedEngine, bad: tuple[list[int], SamplingParams]) -> tuple[object, object]:
    async def run() -> tuple[object, object]:
        return await asyncio.gather(  # type: ignore[return-value]
            engine.generate(to_ids(bad[0]), bad[1], session=Session("bad", "0")),
            engine.generate(to_ids([1, 2]), SamplingParams(max_tokens=3), session=Session("good", "0")),
            return_exceptions=True,
        )

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("ids", "params", "words"),
    [
        ([], {"max_tokens": 4}, "empty prompt"),
        ([1, VOCAB], {"max_tokens": 4}, "outside the vocabulary"),
        ([1, -1], {"max_tokens": 4}, "outside the vocabulary"),
        ([1] * 159, {"max_tokens": 4}, "engine.max_context=160"),
        ([1] * 60, {"max_tokens": 8}, "cache_tokens=64"),
        ([1], {"max_tokens": 0}, "max_tokens=0"),
        ([1], {"max_tokens": 4, "temperature": float("nan")}, "temperature=nan"),
        ([1], {"max_tokens": 4, "temperature": -1.0}, "temperature=-1.0"),
        ([1], {"max_tokens": 4, "top_p": 0.0}, "top_p=0.0"),
        ([1], {"max_tokens": 4, "top_k": -1}, "top_k=-1"),
        ([1], {"max_tokens": 4, "min_p": 2.0}, "min_p=2.0"),
        ([1], {"max_tokens": 4, "stop_token_ids": (VOCAB,)}, "has a stop token outside the vocabulary"),
        ([1], {"max_tokens": 4, "grammar": Grammar(kind="regex", text="a")}, "turnwise[guided]"),
    ],
)
def test_a_bad_request_is_refused_alone(
    qwen: PreTrainedModel, ids: list[int], params: dict[str, Any], words: str
) -> None:
    bad, good = together(build(qwen, cache_tokens=64), (ids, SamplingParams(**params)))
    assert isinstance(bad, EngineError)
    assert words in str(bad)
    assert isinstance(good, Completion)
    assert len(good.token_ids) == 3


@pytest.mark.parametrize("fused", [False, True])
def test_logits_that_are_not_finite_fail_their_request_alone_and_leave_no_trace(fused: bool) -> None:
    # Only token 7's embedding is broken, and untied, so only prompts with a 7 see it.
    model = build_model("qwen3", {**CONFIG, "tie_word_embeddings": False}, vocab_size=VOCAB, seed=1)
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = float("nan")
        model.lm_head.weight[7] = 0.0
    engine = build(model, fused=fused, cache_tokens=96)
    for _ in range(3):
        bad, good = together(engine, ([7, 7] * 20, SamplingParams(max_tokens=3)))
        assert isinstance(bad, EngineError)
        assert "not finite" in str(bad)
        assert isinstance(good, Completion)
        assert np.isfinite(good.logprobs).all()
    # The broken pages are used again by a longer conversation.
    long = asyncio.run(engine.generate(to_ids([3] * 70), SamplingParams(max_tokens=20), session=Session("long", "0")))
    assert np.isfinite(long.logprobs).all()


def test_a_crash_in_the_middle_of_a_batch_fails_the_request_that_causes_it(qwen: PreTrainedModel) -> None:
    def decode(ids: Any) -> str:
        raise KeyError("no such token")

    bad, good = together(build(qwen, decode=decode), ([1, 2, 3], SamplingParams(max_tokens=3, stop=("x",))))
    assert isinstance(bad, EngineError)
    assert "KeyError" in str(bad)
    assert isinstance(good, Completion)


def test_a_crash_in_the_model_fails_the_request_that_causes_it(qwen: PreTrainedModel) -> None:
    def crash(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        if (args[0] == 42).any():
            raise MemoryError("planted")

    hook = qwen.get_input_embeddings().register_forward_pre_hook(crash)
    try:
        engine = build(qwen, fused=False)
        bad, good = together(engine, ([42, 2, 3], SamplingParams(max_tokens=3)))
    finally:
        hook.remove()
    assert isinstance(bad, EngineError)
    assert "planted" in str(bad)
    assert isinstance(good, Completion)
    alone = asyncio.run(
        build(qwen, fused=False).generate(to_ids([1, 2]), SamplingParams(max_tokens=3), session=Session("x", "0"))
    )
    assert good.logprobs.tolist() == alone.logprobs.tolist()
    assert engine.statistics().num_held_pages == 0


def test_a_cancelled_request_leaves_the_others_alone_and_frees_its_pages(qwen: PreTrainedModel) -> None:
    engine = build(qwen)

    async def run() -> Completion:
        doomed = asyncio.create_task(
            engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=100), session=Session("doomed", "0"))
        )
        await until(lambda: engine.statistics().num_sampled_tokens)
        doomed.cancel()
        await asyncio.gather(doomed, return_exceptions=True)
        return await engine.generate(to_ids(prompt_of(2)), SamplingParams(max_tokens=5), session=Session("next", "0"))

    assert len(asyncio.run(run()).token_ids) == 5
    assert engine.statistics().num_held_pages == 0


def test_pages_of_a_cancelled_request_stay_its_own_until_the_step_ends(qwen: PreTrainedModel) -> None:
    engine, run_model = build(qwen), ModelRunner.run
    held: list[int] = []

    async def run() -> None:
        doomed = asyncio.create_task(
            engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=100), session=Session("doomed", "0"))
        )
        loop = asyncio.get_running_loop()

        def run_slowly(items: Any) -> torch.Tensor:
            if engine.statistics().num_sampled_tokens == 5:
                held.append(engine.statistics().num_held_pages)
                loop.call_soon_threadsafe(doomed.cancel)
                wait_outside(doomed.done)
                held.append(engine.statistics().num_held_pages)
            return run_model(engine._runner, items)  # type: ignore[arg-type]

        engine._runner.run = run_slowly  # type: ignore[method-assign]
        await asyncio.gather(doomed, return_exceptions=True)
        await engine.pause()
        await engine.resume()

    asyncio.run(run())
    # 25 tokens are one page of 32.
    assert held == [1, 1]
    assert engine.statistics().num_held_pages == 0


@pytest.mark.parametrize("drafted", [0, 8])
def test_cancelling_one_of_a_group_changes_nothing_for_the_others(qwen: PreTrainedModel, drafted: int) -> None:
    def run(cancel: bool) -> list[Completion]:
        return run_two_of_three(build(qwen, max_draft_tokens=drafted), to_ids(SYSTEM), max_tokens=30, cancel=cancel)

    assert same(run(cancel=True), run(cancel=False))


def test_close_fails_what_is_running(qwen: PreTrainedModel) -> None:
    engine = build(qwen)

    async def run() -> list[object]:
        job = asyncio.create_task(
            engine.generate(to_ids(prompt_of(1)), SamplingParams(max_tokens=100), session=Session("s", "0"))
        )
        await until(lambda: engine.statistics().num_sampled_tokens)
        await engine.close()
        return await asyncio.gather(job, return_exceptions=True)  # type: ignore[return-value]

    (failure,) = asyncio.run(run())
    assert isinstance(failure, EngineError)
    assert "closed" in str(failure)


def test_a_model_with_its_own_attention_samples_the_same_through_its_own_cache(qwen: PreTrainedModel) -> None:
    prompt = to_ids(np.arange(5, 45))
    packed = run_two_of_three(build(qwen), prompt, max_tokens=20, cancel=True)
    qwen.set_attn_implementation("eager")
    try:
        for cancel in (False, True):
            own = run_two_of_three(build(qwen), prompt, max_tokens=20, cancel=cancel)
            assert distance(own, packed) < 1e-5
    finally:
        qwen.set_attn_implementation("turnwise")


def test_fused_is_refused_where_there_is_none() -> None:
    gemma = build_model("gemma", CONFIG, vocab_size=VOCAB, seed=1)
    assert not build(gemma).is_fused
    with pytest.raises(EngineError, match="model_type 'gemma'"):
        build(gemma, fused=True)


@pytest.mark.parametrize(
    ("model_type", "more"), [("qwen2", {}), ("llama", {"attention_bias": True, "tie_word_embeddings": False})]
)
def test_fused_agrees_with_the_modules(model_type: str, more: dict[str, Any]) -> None:
    model = build_model(model_type, {**CONFIG, **more}, vocab_size=VOCAB, seed=4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))) * 0.3)
    fused, modules = (crowd(build(model, fused=f), [1, 2, 3]) for f in (True, False))
    for seed in (1, 2, 3):
        for a, b in zip(fused[seed], modules[seed], strict=True):
            assert a.token_ids.tolist() == b.token_ids.tolist()
            assert a.logprobs.tolist() == pytest.approx(b.logprobs.tolist(), abs=5e-6)
