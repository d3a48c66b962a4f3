"""Attention that reads pages once for all requests that share them (cascade attention), in float32 on a CPU.

Keys are cut into *blocks* of `BLOCK` positions, counted from the beginning of a request. A token attends to each block
by itself, which gives a partial output and the logarithm of its sum of exponentials, and the partial outputs are added
with the softmax of these logarithms as weights. (The split is that of online softmax, Milakov and Gimelshein,
arXiv:1805.02867, and of Flash-Decoding; reading a shared prefix once is Hydragen's idea, arXiv:2402.05099. Unlike
these, a token's blocks do not depend on who shares what.) Tokens that see the same block as a whole, of whatever
requests, read it together: its pages are gathered once, and one product has the queries of all of them.

A row keeps its bits in any company. The kernel gives a row of a block the same bits among any number of rows (see
`models.invariant`), blocks begin at fixed positions, and a row's partial outputs are added in the order of the blocks.
The bits are not those of `PagedAttention`, which sums all keys of a row at once: results agree to rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from turnwise.engines.paged.attention import Geometry, PagedMemory, PagedPlan, Tile, bucket
from turnwise.models.invariant import MIN_ROWS, TILE

BLOCK = 128
"""Keys of a block: whole pages of every size, and few enough for kernels to sum them in one piece (see
`models.invariant.padded_span`)."""
PART_ELEMENTS = 1 << 21
"""Numbers of partial outputs kept at once; 8 MiB."""
LANES = 16
"""Numbers of the widest vector register: a softmax over whole registers does not depend on how many follow unused."""


@dataclass(frozen=True, slots=True)
class Read:
    """Tokens, at most `TILE`, that read one block together."""

    block: int
    """Which one of their requests."""
    pages: Sequence[int]
    """Those that hold the block, in order; of its last block a request may have fewer than all."""
    places: Sequence[int]
    """The tokens' places in the flat batch."""
    num_seen: int | None = None
    """Keys of the block that the first token sees; each further one sees one more. None: all see all."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Reads computed together, each filled up to `num_tokens` tokens by repeating its last one."""

    num_tokens: int
    pages: torch.Tensor
    """`[reads * BLOCK / page_size]`."""
    places: torch.Tensor
    """`[reads * num_tokens]` places in the flat batch."""
    parts: torch.Tensor
    """`[reads * num_tokens]` which partial outputs these are, of `[tokens of the section * num_blocks]`."""
    mask: torch.Tensor | None
    """`[reads, 1, num_tokens * heads per kv head (or 1), BLOCK]`; None where all is seen."""


@dataclass(frozen=True, slots=True)
class _Section:
    """Tokens that follow each other in the flat batch, as many as their partial outputs have room for."""

    first: int
    num_tokens: int
    num_blocks: int
    """Of the longest request."""
    batches: list[_Batch]


class CascadeAttention(PagedPlan):
    """The attention plan of one engine step that reads what is shared once."""

    def __init__(self, memory: PagedMemory, tiles: Sequence[Tile], slots: torch.Tensor) -> None:
        """`tiles` in the order of the flat batch; see `PagedPlan` for `slots`. The memory is float32 on a CPU."""
        super().__init__(memory, slots)
        self._sections = [_build_section(section, memory) for section in _cut_sections(tiles, memory.geometry)]

    def read(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """See `PagedPlan`."""
        out = torch.empty(query.shape, dtype=query.dtype)
        out[len(self._slots) :] = 0
        for section in self._sections:
            merge_parts(*self._read_parts(section, layer, query, scaling), out=out.narrow(0, section.first, section.num_tokens))
        return out

    def _read_parts(
        self, section: _Section, layer: int, query: torch.Tensor, scaling: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Partial outputs `[tokens, blocks, heads, D]` and logarithms `[tokens, blocks, heads]`, 0 and -inf where a
        token has no such block."""
        heads, kv_heads, dim = query.shape[1], self._memory.geometry.num_kv_heads, query.shape[2]
        repeats = heads // kv_heads
        count = section.num_tokens * section.num_blocks
        outputs = query.new_zeros(count, heads, dim)
        logarithms = query.new_full((count, heads), float("-inf"))
        for batch in section.batches:
            size, places = batch.num_tokens, len(batch.places)
            cached = self._memory.gather(layer, batch.pages).view(-1, BLOCK, 2, kv_heads, dim)
            mine = (
                query.index_select(0, batch.places)
                .view(-1, size, kv_heads, repeats, dim)
                .transpose(1, 2)
                .reshape(-1, kv_heads, size * repeats, dim)
            )
            output, logarithm = attend_block(
                mine, cached[:, :, 0].transpose(1, 2), cached[:, :, 1].transpose(1, 2), batch.mask, scaling
            )
            # Repeated places hold equal rows.
            output = output.view(-1, kv_heads, size, repeats, dim).transpose(1, 2)
            outputs.index_copy_(0, batch.parts, output.reshape(places, heads, dim))
            logarithm = logarithm.view(-1, kv_heads, size, repeats).transpose(1, 2)
            logarithms.index_copy_(0, batch.parts, logarithm.reshape(places, heads))
        shape = (section.num_tokens, section.num_blocks, heads)
        return outputs.view(*shape, dim), logarithms.view(shape)


def attend_block(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scaling: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend with `query [n, kv_heads, rows, D]` to `keys` and `values` `[n, kv_heads, BLOCK, D]` alone, under an
    additive `mask [n, 1, rows or 1, BLOCK]` that hides no row's keys entirely.

    Returns the output `[n, kv_heads, rows, D]` and the logarithm of the sum of exponentials `[n, kv_heads, rows]`.
    Fewer than `MIN_ROWS` rows are padded for the kernel."""
    rows = query.shape[2]
    if rows < MIN_ROWS:
        query = functional.pad(query, (0, 0, 0, MIN_ROWS - rows))
    if mask is not None:
        mask = mask.expand(-1, -1, query.shape[2], -1)
    # The public function keeps the logarithms to itself.
    output, logarithm = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, attn_mask=mask, scale=scaling
    )
    return output[:, :, :rows], logarithm[:, :, :rows]


def merge_parts(outputs: torch.Tensor, logarithms: torch.Tensor, *, out: torch.Tensor) -> None:
    """Write the attention `[T, heads, D]` of partial outputs `[T, blocks, heads, D]` and their logarithms
    `[T, blocks, heads]` to `out`: the sum of the outputs, weighted by the softmax of the logarithms, block by block.
    """
    count, num_blocks, heads = logarithms.shape
    padded = logarithms.new_full((count, heads, -(-num_blocks // LANES) * LANES), float("-inf"))
    padded[:, :, :num_blocks] = logarithms.transpose(1, 2)
    weights = padded.softmax(-1)
    torch.mul(outputs[:, 0], weights[:, :, :1], out=out)
    for block in range(1, num_blocks):
        out += outputs[:, block] * weights[:, :, block : block + 1]


def find_reads(tiles: Sequence[Tile], page_size: int) -> list[Read]:
    """What the tokens of `tiles` read: each block that a token sees whole together with all others that do, and the
    block that a token stands in with its neighbours of the same tile."""
    width = BLOCK // page_size
    whole: dict[tuple[int, ...], list[int]] = {}
    reads = []
    for tile in tiles:
        for at, start, count in _cut_at_blocks(tile):
            last = start // BLOCK
            places = range(at, at + count)
            for block in range(last):
                whole.setdefault((block, *tile.pages[block * width : (block + 1) * width]), []).extend(places)
            reads.append(Read(last, tile.pages[last * width : (last + 1) * width], places, start - last * BLOCK + 1))
    for (block, *pages), sharing in whole.items():
        reads += [Read(block, pages, sharing[at : at + TILE]) for at in range(0, len(sharing), TILE)]
    return reads


def _cut_at_blocks(tile: Tile) -> Iterator[tuple[int, int, int]]:
    """Place, position and number of the tile's tokens in each block."""
    at, start, end = tile.at, tile.start, tile.start + tile.count
    while start < end:
        count = min(end, (start // BLOCK + 1) * BLOCK) - start
        yield at, start, count
        at, start = at + count, start + count


def _cut_sections(tiles: Sequence[Tile], geometry: Geometry) -> list[list[Tile]]:
    """Tiles in order, cut where partial outputs would outgrow `PART_ELEMENTS`."""
    sections: list[list[Tile]] = []
    num_tokens = longest = 0
    for tile in tiles:
        num_tokens, longest = num_tokens + tile.count, max(longest, _num_blocks(tile))
        if not sections or num_tokens * longest * geometry.num_heads * geometry.head_dim > PART_ELEMENTS:
            sections.append([])
            num_tokens, longest = tile.count, _num_blocks(tile)
        sections[-1].append(tile)
    return sections


def _num_blocks(tile: Tile) -> int:
    """Blocks that the tile's last token sees."""
    return -(-(tile.start + tile.count) // BLOCK)


def _build_section(tiles: list[Tile], memory: PagedMemory) -> _Section:
    first, num_blocks = tiles[0].at, max(map(_num_blocks, tiles))
    like: dict[tuple[int, bool], list[Read]] = {}
    for read in find_reads(tiles, memory.page_size):
        like.setdefault((bucket(len(read.places)), read.num_seen is None), []).append(read)
    most = max(1, memory.gather_elements // (BLOCK * memory.geometry.token_size))
    batches = [
        _build_batch(reads[at : at + most], size, memory, first, num_blocks)
        for (size, _), reads in like.items()
        for at in range(0, len(reads), most)
    ]
    return _Section(first, sum(tile.count for tile in tiles), num_blocks, batches)


def _build_batch(reads: list[Read], size: int, memory: PagedMemory, first: int, num_blocks: int) -> _Batch:
    """The batch of `reads`, all with a mask or all without, of a section that begins at place `first`."""
    pages = np.zeros((len(reads), BLOCK // memory.page_size), dtype=np.int64)
    places = np.empty((len(reads), size), dtype=np.int64)
    for row, read in enumerate(reads):
        pages[row, : len(read.pages)] = read.pages
        places[row, : len(read.places)] = read.places
        places[row, len(read.places) :] = read.places[-1]
    parts = (places - first) * num_blocks + np.array([[read.block] for read in reads])
    return _Batch(
        size,
        torch.from_numpy(pages.reshape(-1)),
        torch.from_numpy(places.reshape(-1)),
        torch.from_numpy(parts.reshape(-1)),
        _build_mask(reads, places, memory.geometry),
    )


def _build_mask(reads: list[Read], places: np.ndarray, geometry: Geometry) -> torch.Tensor | None:
    """The mask of a batch; None where its tokens see whole blocks."""
    if reads[0].num_seen is None:
        return None
    seen = torch.from_numpy(places - places[:, :1] + np.array([[read.num_seen] for read in reads]))
    repeats = 1 if places.shape[1] == 1 else geometry.num_heads // geometry.num_kv_heads
    hidden = torch.arange(BLOCK) >= seen.repeat_interleave(repeats, dim=1)[:, None, :, None]
    return torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
