"""Recorded decoding steps: what is repeated without Python samples what a step with Python samples.

The recorder of `pretend_graphs.py` keeps tensors and operations only, like a GPU's graphs.
"""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from pretend_graphs import record_on_cpu
from small_model import CONFIG, VOCAB, distance
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.engines.paged.attention import Geometry, PagedMemory, PagedPlan
from turnwise.engines.paged.graphs import DecodeGraphs, DecodeRow
from turnwise.engines.paged.prefix_cache import Lease, Node
from turnwise.engines.paged.runner import ModelRunner
from turnwise.engines.paged.scheduler import Item, Request
from turnwise.models.build import build_model

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
BOUND = 1e-10
"""Most that log-probabilities in float64 may differ."""


@pytest.fixture
def model() -> PreTrainedModel:
    return build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1, dtype="float64")


def build(model: PreTrainedModel, *, graphs: bool, **changes: Any) -> PagedEngine:
    if graphs:
        changes = {"attention": "flex", "cuda_graphs": True, "recorder": lambda: record_on_cpu(), **changes}
    return PagedEngine(model, **{"max_concurrency": 12, "max_context": 64, "page_size": 16, **changes})


def ask(engine: PagedEngine, *lengths: int, first: int = 0) -> list[Completion]:
    """Requests that share 18 tokens and sample so many each, all at once."""
    system = np.random.default_rng(99).integers(0, VOCAB, 18).tolist()

    async def run() -> list[Completion]:
        jobs = [
            engine.generate(
                to_ids([*system, first, i]),
                SamplingParams(max_tokens=n, seed=100 * first + i),
                session=Session(str(first), str(i)),
            )
            for i, n in enumerate(lengths)
        ]
        return list(await asyncio.gather(*jobs))

    return asyncio.run(run())


def batch_sizes(engine: PagedEngine) -> list[int]:
    graphs = engine._runner._graphs  # type: ignore[attr-defined]
    return [] if graphs is None else graphs.batch_sizes


def test_batches_that_grow_and_shrink_sample_the_same(model: PreTrainedModel) -> None:
    engine, plain = build(model, graphs=True), build(model, graphs=False)
    # Two alone, then eleven that end one after the other, then three: pages are used again and again.
    for first, lengths in enumerate([(4, 6), range(3, 14), (5, 5, 9)]):
        assert distance(ask(engine, *lengths, first=first), ask(plain, *lengths, first=first)) < BOUND
    # Steps of nine to eleven rows took the larger graph.
    assert batch_sizes(engine) == [8, 16]
    # The blank page is as it was.
    assert all(layer[:16].abs().max() == 0 for layer in engine._runner.memory.layers)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changes", [{"cache_tokens": 96}, {"max_batch_tokens": 1}, {"max_batch_tokens": 5}, {"max_draft_tokens": 4}]
)
def test_short_memory_single_tokens_of_a_prompt_and_drafts(model: PreTrainedModel, changes: dict[str, Any]) -> None:
    # With one token per step every step of a prompt is one that could decode, and samples nothing.
    ours, theirs = (ask(build(model, graphs=graphs, **changes), 14, 3, 14, 14, 8) for graphs in (True, False))
    assert distance(ours, theirs) < BOUND


def test_new_weights_are_recorded_anew(model: PreTrainedModel) -> None:
    engine = build(model, graphs=True)
    before = ask(engine, 6, 6)
    assert batch_sizes(engine) == [8]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())) * 0.05
            )
    asyncio.run(engine.adopt(1))
    assert batch_sizes(engine) == []
    after = ask(engine, 6, 6)
    assert distance(after, ask(build(model, graphs=False), 6, 6)) < BOUND
    assert [c.logprobs.tolist() for c in after] != [c.logprobs.tolist() for c in before]


def test_padding_rows_write_to_the_spare_page_alone() -> None:
    geometry = Geometry.of_same(num_layers=1, num_heads=2, num_kv_heads=1, head_dim=2)
    memory = PagedMemory(geometry, num_pages=6, page_size=16, dtype=torch.float64, device=torch.device("cpu"))

    def forward(token_ids: torch.Tensor, positions: torch.Tensor, plan: PagedPlan, rows: torch.Tensor) -> torch.Tensor:
        # Keys are zero, so a row's output is the mean of the values it sees; values are token + 1.
        values = (token_ids + 1).double()[:, None].expand(-1, 2)
        plan.write(0, torch.cat([torch.zeros_like(values), values], dim=1))
        return plan.read(0, torch.ones(len(token_ids), 2, 2, dtype=torch.float64), 1.0)[rows].reshape(len(rows), -1)

    graphs = DecodeGraphs(memory, forward, max_pages=3, spare_page=5, record=record_on_cpu())
    # Position 0 of page 2, then position 16: its second page, 4, after a full first one of which only slot 0 holds
    # something: 10.
    assert graphs.run([DecodeRow(9, 0, [2])]).tolist() == [[10.0] * 4]
    outputs = graphs.run([DecodeRow(23, 16, [2, 4]), DecodeRow(6, 1, [3, 1])])
    # (10 + 15 x 0 + 24) / 17 = 2, and (0 + 7) / 2 = 3.5, a page that it has and does not see yet left alone.
    assert outputs.flatten().tolist() == pytest.approx([2.0] * 4 + [3.5] * 4, abs=1e-12)
    assert [memory.pages(0)[page].abs().sum().item() for page in range(5)] == [0, 0, 20, 14, 48]
    assert memory.pages(0)[5].abs().sum().item() == 2  # token 0 of padding rows


def test_a_step_of_single_tokens_gives_logits_of_those_that_sample(model: PreTrainedModel) -> None:
    def compute(**changes: Any) -> list[torch.Tensor]:
        runner = ModelRunner(model, num_pages=4, page_size=16, max_context=32, fused=True, **changes)
        params = SamplingParams(max_tokens=4)
        leases = [Lease([1 + i], Node((), 0, None, 0), 0) for i in range(3)]
        requests = [
            Request(Session("g", str(i)), [5 + i, 6, 7], 3, params, np.zeros(4), lease=lease)
            for i, lease in enumerate(leases)
        ]
        # All but the last token; then of one the first of two, which samples nothing, between two that sample.
        first = runner.run([Item(request, 0, 2 - i % 2) for i, request in enumerate(requests)])
        return [first, runner.run([Item(request, 2 - i % 2, 1) for i, request in enumerate(requests)])]

    recorded, plain = compute(attention="flex", cuda_graphs=True, recorder=lambda: record_on_cpu()), compute()
    assert [len(logits) for logits in recorded] == [len(logits) for logits in plain] == [0, 2]
    assert torch.allclose(recorded[1], plain[1], atol=BOUND, rtol=0)


def test_where_graphs_cannot_be_recorded_they_are_refused(model: PreTrainedModel) -> None:
    shape: dict[str, Any] = {"max_concurrency": 2, "max_context": 32, "cuda_graphs": True}
    with pytest.raises(EngineError, match=r"attention='gather', which copies.*use attention='flex'"):
        PagedEngine(model, **shape)
    with pytest.raises(
        EngineError, match="needs the fused decoder, which does not run here: fused=False; use cuda_graphs=False"
    ):
        PagedEngine(model, **shape, attention="flex", fused=False)
    with pytest.raises(EngineError, match="model_type 'gemma'"):
        PagedEngine(build_model("gemma", CONFIG, vocab_size=VOCAB, seed=1), **shape, attention="flex")
    with pytest.raises(EngineError, match="a model on a GPU, but this one is on cpu; use cuda_graphs=False"):
        PagedEngine(model, **shape, attention="flex")
