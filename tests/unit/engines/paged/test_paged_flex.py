"""Attention that reads pages in place: the same function as gathering them, in every situation the engine gets into.

Eagerly, on the CPU. The slow test compiles torch's kernel for the CPU, which reads listed pages only, like those for a
GPU.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pretend_graphs import record_on_cpu
from small_model import CONFIG, VOCAB, distance, run_two_of_three
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine, flex
from turnwise.engines.paged.attention import Geometry, PagedMemory
from turnwise.engines.paged.flex import FlexAttention
from turnwise.models.build import build_model

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
BOUNDS = {"float64": 1e-10, "float32": 1e-5}
"""Most that log-probabilities may differ: sums of some dozen numbers around 1 in another order."""
GRAPHS = {"attention": "flex", "cuda_graphs": True, "recorder": lambda: record_on_cpu()}
PATHS: dict[str, dict[str, Any]] = {"flex": {"attention": "flex"}, "graphs": GRAPHS}


@pytest.fixture(scope="module")
def models() -> dict[str, PreTrainedModel]:
    return {
        dtype: build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1, dtype=dtype) for dtype in (*BOUNDS, "bfloat16")
    }


def build(model: PreTrainedModel, **changes: Any) -> PagedEngine:
    return PagedEngine(model, **{"max_concurrency": 8, "max_context": 112, "page_size": 16, **changes})


def prompt_of(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


SYSTEM = prompt_of(99, 66)


async def converse(engine: PagedEngine, group: int, member: int, turns: int) -> list[Completion]:
    """Members of a group share their prompt, longer than a tile; groups begin alike; later turns differ."""
    ids, done = [*SYSTEM, *prompt_of(group, 8)], []
    for turn in range(turns):
        params = SamplingParams(max_tokens=4 + member, seed=100 * group + 10 * member + turn)
        done.append(await engine.generate(to_ids(ids), params, session=Session(str(group), str(member))))
        ids = [*ids, *done[-1].token_ids.tolist(), *prompt_of(50 + turn, 5)]
    await engine.release(Session(str(group), str(member)))
    return done


def crowd(engine: PagedEngine, *, groups: int = 2, members: int = 3, turns: int = 2) -> list[Completion]:
    async def run() -> list[list[Completion]]:
        return await asyncio.gather(
            *(converse(engine, group, member, turns) for group in range(groups) for member in range(members))
        )

    return [completion for completions in asyncio.run(run()) for completion in completions]


@dataclass
class Run:
    """A tile."""

    at: int
    start: int
    count: int
    pages: list[int]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from([1, 1, 1, 2, 16, 17, 20])), min_size=1, max_size=5),
    st.integers(0, 2**31),
)
def test_a_row_attends_to_the_slots_of_its_request_up_to_itself(shapes: list[tuple[int, int]], seed: int) -> None:
    draw, size, num_pages = np.random.default_rng(seed), 16, 9
    geometry = Geometry.of_same(num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8)
    memory = PagedMemory(geometry, num_pages=num_pages, page_size=size, dtype=torch.float64, device=torch.device("cpu"))
    memory.layers[1].copy_(torch.from_numpy(draw.normal(size=memory.layers[1].shape)))
    tiles, at = [], 0
    for start, count in sorted(shapes, key=lambda shape: flex._num_rows(Run(0, 0, shape[1], []))):
        # Any pages in any order, also those of other tiles, and one more than are needed.
        tiles.append(
            Run(at, start, count, (1 + draw.permutation(num_pages - 1)[: (start + count) // size + 1]).tolist())
        )
        at += count
    query = torch.from_numpy(draw.normal(size=(at + 2, 4, 8)))
    plan = FlexAttention.of(memory, tiles, torch.zeros(at, dtype=torch.int64), max_pages=num_pages)
    out = plan.read(1, query, 0.3)
    assert out[at:].abs().max() == 0  # padding rows
    for tile in tiles:
        slots = (np.array(tile.pages)[:, None] * size + np.arange(size)).reshape(-1)[: tile.start + tile.count]
        keys, values = memory.layers[1][slots].view(-1, 2, 2, 8).repeat_interleave(2, dim=2).unbind(1)
        for row in range(tile.count):
            seen = tile.start + row + 1
            weights = (torch.einsum("hd,shd->hs", query[tile.at + row], keys[:seen]) * 0.3).softmax(-1)
            assert torch.allclose(
                out[tile.at + row], torch.einsum("hs,shd->hd", weights, values[:seen]), atol=1e-12, rtol=0
            )


CHUNKS = "prefill in chunks"
SITUATIONS: dict[str, dict[str, Any]] = {
    "turns of groups that share beginnings": {},
    CHUNKS: {"max_batch_tokens": 7},
    "pages of 64, modules": {"page_size": 64, "fused": False},
    "drafts": {"max_draft_tokens": 8},
    "few at once": {"max_concurrency": 2, "page_size": 32},
}


@pytest.mark.parametrize(
    ("dtype", "situation"),
    [*(("float64", each) for each in SITUATIONS), *(("float32", each) for each in ("drafts", CHUNKS))],
)
def test_flex_samples_what_gather_samples(models: dict[str, PreTrainedModel], dtype: str, situation: str) -> None:
    shape = SITUATIONS[situation]
    assert (
        distance(crowd(build(models[dtype], attention="flex", **shape)), crowd(build(models[dtype], **shape)))
        < BOUNDS[dtype]
    )


@pytest.mark.parametrize("path", PATHS)
def test_a_preempted_request_goes_on_where_it_was(models: dict[str, PreTrainedModel], path: str) -> None:
    # Six pages; each of three requests begins with one and ends with three.
    def run(**changes: Any) -> tuple[list[Completion], int]:
        engine = build(models["float64"], cache_tokens=96, **changes)

        async def all_three() -> list[Completion]:
            jobs = [
                engine.generate(
                    to_ids(prompt_of(i, 12)), SamplingParams(max_tokens=36, seed=i), session=Session(str(i), "0")
                )
                for i in range(3)
            ]
            return list(await asyncio.gather(*jobs))

        return asyncio.run(all_three()), engine.statistics().num_preemptions

    (ours, preempted), (theirs, _) = run(**PATHS[path]), run()
    assert preempted > 0
    assert distance(ours, theirs) < BOUNDS["float64"]


@pytest.mark.parametrize("path", PATHS)
def test_logits_that_are_not_finite_fail_their_request_alone(path: str) -> None:
    # Only token 7's embedding is broken, and untied, so only prompts with a 7 see it.
    model = build_model("qwen3", {**CONFIG, "tie_word_embeddings": False}, vocab_size=VOCAB, seed=1)
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = float("nan")
        model.lm_head.weight[7] = 0.0

    async def together(engine: PagedEngine) -> tuple[object, object]:
        bad = engine.generate(to_ids([3, 7, 5]), SamplingParams(max_tokens=3), session=Session("bad", "0"))
        good = engine.generate(to_ids([1, 2]), SamplingParams(max_tokens=3), session=Session("good", "0"))
        return await asyncio.gather(bad, good, return_exceptions=True)  # type: ignore[return-value]

    engine, plain = build(model, cache_tokens=64, **PATHS[path]), build(model, cache_tokens=64)
    for _ in range(2):
        (bad, good), (_, expected) = asyncio.run(together(engine)), asyncio.run(together(plain))
        assert isinstance(bad, EngineError)
        assert "not finite" in str(bad)
        assert isinstance(good, Completion)
        assert isinstance(expected, Completion)
        assert distance([good], [expected]) < BOUNDS["float32"]
    # The broken pages are used again by a longer conversation.
    long = asyncio.run(engine.generate(to_ids([3] * 40), SamplingParams(max_tokens=12), session=Session("long", "0")))
    assert np.isfinite(long.logprobs).all()


@pytest.mark.parametrize("path", PATHS)
def test_cancelling_one_of_a_group_changes_nothing_for_the_others(
    models: dict[str, PreTrainedModel], path: str
) -> None:
    def run(cancel: bool, **changes: Any) -> list[Completion]:
        return run_two_of_three(build(models["float64"], **changes), to_ids(SYSTEM), max_tokens=10, cancel=cancel)

    assert distance(run(True, **PATHS[path]), run(False)) < BOUNDS["float64"]


@pytest.mark.parametrize("path", [None, *PATHS])
def test_bfloat16_is_close_to_float32(models: dict[str, PreTrainedModel], path: str | None) -> None:
    def score(dtype: str, **changes: Any) -> np.ndarray:
        engine = build(models[dtype], **changes)

        async def run() -> list[Completion]:
            jobs = [
                # Only the first token of each reply: after it the texts may differ.
                engine.generate(
                    to_ids([*SYSTEM, i]), SamplingParams(max_tokens=1, temperature=0.0), session=Session("g", str(i))
                )
                for i in range(6)
            ]
            return list(await asyncio.gather(*jobs))

        # The prompt is there, so the step that scores is one of single tokens.
        asyncio.run(engine.generate(to_ids(SYSTEM), SamplingParams(max_tokens=1), session=Session("first", "0")))
        done = asyncio.run(run())
        graphs = engine._runner._graphs  # type: ignore[attr-defined]
        assert (graphs is not None) is ("cuda_graphs" in changes)
        return np.array([c.logprobs[0] for c in done])

    # bfloat16 rounds by up to 2^-9 of what it holds; some such roundings of logits well below 1.
    assert np.abs(score("bfloat16", **PATHS.get(path or "", {})) - score("float32")).max() < 0.02


def test_heads_too_small_for_the_compiled_kernel_are_refused(
    models: dict[str, PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.engines.paged.runner.COMPILED_DEVICES", ("cpu",))
    with pytest.raises(EngineError, match="but one has 8; use attention='gather'"):
        build(models["float32"], attention="flex")


@pytest.mark.slow
def test_a_compiled_kernel_reads_the_listed_pages_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's kernel for the CPU. It wants lists as long as the memory has pages, which those for a GPU do not."""
    monkeypatch.setattr(flex, "COMPILED_DEVICES", ("cpu",))
    size, num_pages = 16, 5
    geometry = Geometry.of_same(num_layers=1, num_heads=4, num_kv_heads=2, head_dim=16)
    memory = PagedMemory(geometry, num_pages=num_pages, page_size=size, dtype=torch.float32, device=torch.device("cpu"))
    draw = np.random.default_rng(0)
    memory.layers[0].copy_(torch.from_numpy(draw.normal(size=memory.layers[0].shape)))
    tiles = [Run(0, 20, 1, [3, 1]), Run(1, 37, 1, [3, 4, 1]), Run(2, 3, 18, [4, 3])]
    query = torch.from_numpy(draw.normal(size=(20, 4, 16)).astype(np.float32))

    def read() -> torch.Tensor:
        with torch.inference_mode():
            return FlexAttention.of(memory, tiles, torch.zeros(20, dtype=torch.int64), max_pages=num_pages).read(
                0, query, 0.25
            )

    compiled = read()
    with monkeypatch.context() as patch:
        patch.setattr(flex, "COMPILED_DEVICES", ())
        eager = read()
    assert torch.allclose(compiled, eager, atol=1e-5, rtol=0)
    memory.pages(0)[2] = float("nan")  # a page that no request has
    assert torch.equal(read(), compiled)
