"""Attention that reads shared pages once: what is read together, softmax, and a row's bits in any company."""

import asyncio
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_model import CONFIG, VOCAB
from transformers import PreTrainedModel

from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.engines.paged.attention import Geometry, PagedMemory
from turnwise.engines.paged.cascade import BLOCK, CascadeAttention, Read, find_reads, merge_parts
from turnwise.models.attention import Rules
from turnwise.models.build import build_model


@dataclass(frozen=True)
class Piece:
    """A tile."""

    at: int
    start: int
    count: int
    pages: list[int]


def test_tokens_that_see_a_block_whole_read_it_together_and_the_block_they_stand_in_alone() -> None:
    # Pages of 64: a block is two. Both requests have 200 tokens or more and begin with pages 1 and 2.
    decoding = Piece(at=0, start=200, count=1, pages=[1, 2, 3, 4])
    prompt = Piece(at=1, start=126, count=4, pages=[1, 2, 5])
    assert find_reads([decoding, prompt], 64) == [
        Read(1, [3, 4], range(0, 1), 73),  # position 200 is the 73rd of block 1
        Read(0, [1, 2], range(1, 3), 127),  # positions 126 and 127 still stand in block 0
        Read(1, [5], range(3, 5), 1),
        Read(0, [1, 2], [0, 3, 4]),
    ]


def test_no_more_than_64_tokens_read_together_and_equal_pages_at_another_place_are_not_shared() -> None:
    many = [Piece(at=i, start=128, count=1, pages=[1, 2, 3 + i]) for i in range(65)]
    shared = [read for read in find_reads(many, 64) if read.num_seen is None]
    assert [len(read.places) for read in shared] == [64, 1]
    swapped = [Piece(0, 256, 1, [1, 2, 3, 4, 5]), Piece(1, 256, 1, [3, 4, 1, 2, 6])]
    assert sum(read.num_seen is None for read in find_reads(swapped, 64)) == 4


def test_parts_are_weighted_by_the_softmax_of_their_logarithms() -> None:
    # Sums of exponentials 1 and 3, and no third block: weights 1/4, 3/4, 0.
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [7.0, 7.0]])[:, None]
    logarithms = torch.tensor([[0.0], [math.log(3.0)], [-math.inf]])
    assert merge_parts(outputs, logarithms).flatten().tolist() == pytest.approx([0.25, 0.75], abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**31))
def test_parts_are_added_with_the_same_bits_whatever_longer_requests_are_beside(
    num_blocks: int, further: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    outputs, logarithms = (
        torch.randn(5, num_blocks, 3, 20, generator=draw),
        torch.randn(5, num_blocks, 3, generator=draw),
    )
    padded = torch.cat([outputs, torch.zeros(5, further, 3, 20)], 1)
    unused = torch.cat([logarithms, torch.full((5, further, 3), -math.inf)], 1)
    assert torch.equal(merge_parts(outputs[:1], logarithms[:1]), merge_parts(padded, unused)[:1])


class World:
    """Requests that share their beginnings, each with random keys and values in pages of its own and shared ones."""

    def __init__(
        self, lengths: list[int], *, shared: int, page_size: int, heads: tuple[int, int, int], seed: int
    ) -> None:
        """`lengths` in tokens; the first `shared` pages are the same for all requests that have as many. `heads` are
        heads, kv heads and their size."""
        draw = torch.Generator().manual_seed(seed)
        self.size = page_size
        geometry = Geometry.of_same(num_layers=1, num_heads=heads[0], num_kv_heads=heads[1], head_dim=heads[2])
        needed = [-(-length // page_size) for length in lengths]
        num_pages = 1 + shared + sum(needed)
        self.memory = PagedMemory(
            geometry, num_pages=num_pages, page_size=page_size, dtype=torch.float32, device=torch.device("cpu")
        )
        self.memory.layers[0][page_size:] = torch.randn(
            (num_pages - 1) * page_size, geometry.largest.token_size, generator=draw
        )
        free = iter((torch.randperm(num_pages - 1 - shared, generator=draw) + 1 + shared).tolist())
        self.pages = [
            [1 + index if index < min(shared, count) else next(free) for index in range(count)] for count in needed
        ]
        self.queries = [torch.randn(length, heads[0], heads[2], generator=draw) for length in lengths]

    def attend(self, *asked: tuple[int, int, int], window: int | None = None) -> list[torch.Tensor]:
        """Rows `[count, heads, D]` for each `(request, start, count)`, all in one step."""
        tiles, at, slots = [], 0, []
        for request, start, count in asked:
            for first in range(start, start + count, 64):
                tiles.append(Piece(at, first, min(64, start + count - first), self.pages[request]))
                at += tiles[-1].count
            slots += [
                self.pages[request][p // self.size] * self.size + p % self.size for p in range(start, start + count)
            ]
        query = torch.cat([self.queries[request][start : start + count] for request, start, count in asked])
        out = CascadeAttention(self.memory, tiles, torch.tensor(slots)).read(0, query, 0.3, Rules(window=window))
        return list(out.split([count for _, _, count in asked]))

    def compute_softmax(self, request: int, position: int, window: int | None = None) -> torch.Tensor:
        """The same row, `[heads, D]`, by the definition in float64."""
        heads, kv_heads, dim = (
            self.queries[0].shape[1],
            self.memory.geometry.largest.num_kv_heads,
            self.queries[0].shape[2],
        )
        slots = [self.pages[request][p // self.size] * self.size + p % self.size for p in range(position + 1)]
        slots = slots if window is None else slots[-window:]
        keys, values = self.memory.layers[0][slots].double().view(-1, 2, kv_heads, dim).unbind(1)
        rows = []
        for head in range(heads):
            mine = head // (heads // kv_heads)
            weights = torch.softmax(keys[:, mine] @ self.queries[request][position, head].double() * 0.3, 0)
            rows.append(weights @ values[:, mine])
        return torch.stack(rows)


@pytest.mark.parametrize("page_size", [16, 32, 64])
@pytest.mark.parametrize("heads", [(6, 2, 16), (4, 4, 8), (4, 1, 32)])
@pytest.mark.parametrize("window", [None, 1, 100, 128, 200, 1000])
def test_attention_is_softmax_over_all_keys_up_to_the_token(
    heads: tuple[int, int, int], page_size: int, window: int | None
) -> None:
    world = World([300, 129, 500, 128, 1, 700], shared=256 // page_size, page_size=page_size, heads=heads, seed=0)
    # Decoding tokens at both ends of a block, and prompts that begin and end inside one.
    asked = [(4, 0, 1), (3, 127, 1), (1, 128, 1), (0, 299, 1), (2, 100, 300), (5, 255, 2), (5, 600, 100)]
    for (request, start, count), rows in zip(asked, world.attend(*asked, window=window), strict=True):
        for offset in {0, count // 2, count - 1}:
            expected = world.compute_softmax(request, start + offset, window)
            assert torch.allclose(rows[offset].double(), expected, atol=2e-6, rtol=0)


def test_rows_that_fill_up_a_batch_are_zero() -> None:
    world = World([140], shared=0, page_size=32, heads=(6, 2, 16), seed=0)
    plan = CascadeAttention(world.memory, [Piece(0, 139, 1, world.pages[0])], torch.tensor([64]))
    out = plan.read(0, torch.ones(8, 6, 16), 0.3)
    assert out[0].abs().min() > 0
    assert not out[1:].any()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_row_of_shared_pages_has_the_same_bits_in_any_company(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from([(6, 2, 32), (4, 2, 16), (8, 8, 64), (3, 1, 128)]))
    window = data.draw(st.sampled_from([None, None, 1, 50, 128, 129, 200, 300, 2000]))
    lengths = data.draw(st.lists(st.integers(1, 900), min_size=2, max_size=12))
    shared = data.draw(st.integers(0, 16))
    world = World(lengths, shared=shared, page_size=32, heads=heads, seed=data.draw(st.integers(0, 2**31)))
    asked = []
    for request, length in enumerate(lengths):
        count = data.draw(st.sampled_from([1, 1, 1, 2, 5, 64, 100]))
        count = min(count, length)
        asked.append((request, length - count, count))
    alone = [world.attend(each, window=window)[0] for each in asked]
    for order in (asked, asked[::-1]):
        for (request, _, _), rows in zip(order, world.attend(*order, window=window), strict=True):
            assert torch.equal(rows, alone[request])
    # A token at a time.
    request, start, count = asked[0]
    for offset in {0, count // 2, count - 1}:
        assert torch.equal(world.attend((request, start + offset, 1), window=window)[0][0], alone[0][offset])


def test_a_step_whose_partial_outputs_have_no_room_is_cut_without_a_trace() -> None:
    # 40 requests of 8 blocks and 8 heads of 64 are 163840 partial numbers; twice as many outgrow the room.
    lengths = [1000 + i for i in range(80)]
    world = World(lengths, shared=20, page_size=32, heads=(8, 2, 64), seed=3)
    asked = [(i, length - 1, 1) for i, length in enumerate(lengths)]
    tiles = [Piece(i, length - 1, 1, world.pages[i]) for i, length in enumerate(lengths)]
    assert len(CascadeAttention(world.memory, tiles, torch.zeros(80, dtype=torch.int64))._list_sections(None)) == 2
    together = world.attend(*asked)
    assert all(torch.equal(together[i], world.attend(asked[i])[0]) for i in range(0, 80, 13))


@pytest.fixture(scope="module")
def qwen() -> PreTrainedModel:
    return build_model("qwen3", {**CONFIG, "max_position_embeddings": 1024}, vocab_size=VOCAB, seed=1)


def sample_groups(
    model: PreTrainedModel, members: list[tuple[int, int]], **changes: object
) -> tuple[list[Completion], int]:
    """Replies to the prompts of groups, 300 tokens each of which all groups share 150, and how often a request was
    preempted; `members` are group and member."""
    settings = {"max_concurrency": 12, "max_context": 400, **changes}
    engine = PagedEngine(model, **settings)  # type: ignore[arg-type]
    system = np.random.default_rng(99).integers(0, VOCAB, 150).tolist()

    async def ask(group: int, member: int) -> Completion:
        prompt = [*system, *np.random.default_rng(group).integers(0, VOCAB, 150).tolist()]
        params = SamplingParams(max_tokens=90, seed=100 * group + member)
        return await engine.generate(to_ids(prompt), params, session=Session(str(group), str(member)))

    async def run() -> list[Completion]:
        return list(await asyncio.gather(*(ask(group, member) for group, member in members)))

    try:
        return asyncio.run(run()), engine.statistics().num_preemptions
    finally:
        asyncio.run(engine.close())


MEMBERS = [(group, member) for group in range(3) for member in range(4)]


def test_groups_sample_the_same_bits_alone_in_company_in_chunks_and_after_preemption(qwen: PreTrainedModel) -> None:
    expected = dict(zip(MEMBERS, sample_groups(qwen, MEMBERS)[0], strict=True))
    for members, changes, is_preempted in (
        ([(1, 2)], {}, False),
        ([(2, 0), (0, 3), (1, 1)], {"page_size": 16, "max_batch_tokens": 50}, False),
        (MEMBERS[::-1], {"page_size": 64, "cache_tokens": 960}, True),
    ):
        replies, num_preemptions = sample_groups(qwen, members, **changes)
        assert (num_preemptions > 0) is is_preempted
        for member, reply in zip(members, replies, strict=True):
            assert reply.token_ids.tolist() == expected[member].token_ids.tolist()
            assert reply.logprobs.tolist() == expected[member].logprobs.tolist()


def test_groups_sample_what_the_modules_sample(qwen: PreTrainedModel) -> None:
    (fused, _), (plain, _) = sample_groups(qwen, MEMBERS), sample_groups(qwen, MEMBERS, fused=False)
    for a, b in zip(fused, plain, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.logprobs.tolist() == pytest.approx(b.logprobs.tolist(), abs=5e-6)


def test_blocks_are_whole_pages_that_kernels_sum_in_one_piece() -> None:
    assert all(BLOCK % page_size == 0 for page_size in (16, 32, 64))
    assert BLOCK <= 192
