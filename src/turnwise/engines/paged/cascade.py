"""Attention that reads pages once for all requests that share them (cascade attention), in float32 on a CPU.

Keys are cut into *blocks* of `BLOCK` positions, counted from the beginning of a request. A token attends to each block
separately, which yields a partial output and the logarithm of its sum of exponentials, and the partial outputs are
added with the softmax of these logarithms as weights. (The split is that of online softmax, Milakov and Gimelshein,
arXiv:1805.02867, and of Flash-Decoding; reading a shared prefix once is Hydragen's idea, arXiv:2402.05099. Unlike
these, a token's blocks do not depend on who shares what.) Tokens of any requests that see the same whole block read it
together: its pages are gathered once, and one product covers all their queries.

A row's bits do not depend on its batch. The kernel computes a row of a block with the same bits among any number of
rows (see `models.invariant`), blocks begin at fixed positions, and a row's partial outputs are added in the order of
the blocks. The bits are not those of `PagedAttention`, which sums all keys of a row at once: results agree to
rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from turnwise.core.errors import EngineError
from turnwise.engines.paged.attention import Geometry, PagedMemory, PagedPlan, Tile, bucket
from turnwise.engines.paged.prefix_cache import BLANK_PAGE
from turnwise.models.attention import PLAIN, Rules
from turnwise.models.invariant import MIN_ROWS, TILE, padded_span

BLOCK = 128
"""Keys of a block: whole pages of every size, few enough for kernels to sum in one piece (see
`models.invariant.padded_span`)."""
PART_ELEMENTS = 1 << 18
"""Number of partial outputs kept at once; 1 MiB, which stays in the processor's cache."""
LANES = 16
"""Numbers in the widest vector register: a softmax over whole registers does not depend on how many unused ones
follow."""


@dataclass(frozen=True, slots=True)
class Read:
    """Up to `TILE` tokens that read one block together."""

    block: int
    """Index of the block in their requests."""
    pages: Sequence[int]
    """Pages that hold the block, in order; a request's last block may have fewer than all."""
    places: Sequence[int]
    """Indices of the tokens in the flat batch."""
    num_seen: int | None = None
    """Keys of the block up to the last one that the first token sees; each further token sees one more. None: all."""
    num_unseen: int = 0
    """Keys at the beginning of the block that the first token no longer sees; for each further token one more."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Reads computed together, each padded to `num_tokens` tokens by repeating its last one."""

    num_tokens: int
    pages: torch.Tensor
    """`[reads * span / page_size]`."""
    span: int
    """Keys gathered from each block."""
    places: torch.Tensor
    """`[reads * num_tokens]` indices in the section."""
    parts: torch.Tensor
    """`[reads * num_tokens]` indices of these partial outputs among the section's `[num_tokens * num_blocks]`."""
    mask: torch.Tensor | None
    """`[reads, 1, num_tokens * heads per kv head (or 1), span]`; None if everything is seen."""


@dataclass(frozen=True, slots=True)
class _Section:
    """Consecutive tokens of the flat batch, as many as their partial outputs have room for."""

    first: int
    num_tokens: int
    num_blocks: int
    """Number of blocks of the longest request."""
    batches: list[_Batch]


class CascadeAttention(PagedPlan):
    """The attention plan of one engine step that reads shared pages once."""

    def __init__(self, memory: PagedMemory, tiles: Sequence[Tile], slots: torch.Tensor) -> None:
        """`tiles` are in the order of the flat batch; see `PagedPlan` for `slots`. The memory is float32 on a CPU."""
        super().__init__(memory, slots)
        self._tiles = tiles
        self._sections: dict[int | None, list[_Section]] = {}
        """Sections by window, for the layers with that window; all layers have heads of the same sizes."""

    def read(self, layer: int, query: torch.Tensor, scaling: float, rules: Rules = PLAIN) -> torch.Tensor:
        """See `PagedPlan`. Raises EngineError for soft caps and sinks."""
        if not rules.is_plain:
            raise EngineError("reading shared pages once supports neither a soft cap nor a sink; use fused=False")
        out = torch.empty(query.shape, dtype=query.dtype)
        out[len(self._slots) :] = 0
        for section in self._list_sections(rules.window):
            mine = slice(section.first, section.first + section.num_tokens)
            out[mine] = self._read_section(section, layer, query[mine], scaling)
        return out

    def _list_sections(self, window: int | None) -> list[_Section]:
        """Return the sections for layers with this window."""
        if window not in self._sections:
            cut = _cut_sections(self._tiles, self._memory.geometry)
            self._sections[window] = [_build_section(section, self._memory, window) for section in cut]
        return self._sections[window]

    def _read_section(self, section: _Section, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend with `query [tokens, heads, D]`. Returns `[tokens, heads, D]`."""
        count, heads, dim = query.shape
        kv_heads = self._memory.geometry.layers[layer].num_kv_heads
        repeats = heads // kv_heads
        rows = query.view(count, kv_heads, repeats, dim).transpose(0, 1)
        few = functional.pad(rows, (0, 0, 0, max(0, MIN_ROWS - repeats))).flatten(2)
        many = rows.flatten(2)
        outputs = query.new_zeros(kv_heads, count * section.num_blocks, repeats * dim)
        logarithms = query.new_full((kv_heads, count * section.num_blocks, repeats), float("-inf"))
        for batch in section.batches:
            cached = self._memory.gather(layer, batch.pages).view(-1, batch.span, 2, kv_heads, dim)
            output, logarithm = attend_block(
                # Heads come first in memory, here and in what the kernel returns, so that rows are copied whole.
                (few if batch.num_tokens == 1 else many)
                .index_select(1, batch.places)
                .view(kv_heads, len(cached), -1, dim)
                .transpose(0, 1),
                cached[:, :, 0].transpose(1, 2),
                cached[:, :, 1].transpose(1, 2),
                batch.mask,
                scaling,
            )
            # Repeated places hold equal rows.
            shape = (kv_heads, len(batch.places), -1)
            outputs.index_copy_(1, batch.parts, output.transpose(0, 1).reshape(shape)[..., : repeats * dim])
            logarithms.index_copy_(1, batch.parts, logarithm.transpose(0, 1).reshape(shape)[..., :repeats])
        outputs = outputs.view(kv_heads, count, -1, repeats, dim)
        if section.num_blocks == 1:
            merged = outputs[:, :, 0]  # its weight would be 1
        else:
            merged = merge_parts(outputs, logarithms.view(kv_heads, count, -1, repeats))
        return merged.transpose(0, 1).reshape(query.shape)


def attend_block(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scaling: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend with `query [n, kv_heads, rows, D]`, at least `MIN_ROWS` rows, to `keys` and `values` `[n, kv_heads, span,
    D]` alone, under an additive `mask [n, 1, rows or 1, span]` that hides no row's keys entirely.

    Returns the output, shaped as `query`, and the logarithm of each row's sum of exponentials `[n, kv_heads, rows]`."""
    if mask is not None:
        mask = mask.expand(-1, -1, query.shape[2], -1)
    # The public function does not return the logarithms.
    output, logarithm = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, attn_mask=mask, scale=scaling
    )
    return output, logarithm


def merge_parts(outputs: torch.Tensor, logarithms: torch.Tensor) -> torch.Tensor:
    """Add partial outputs `[..., blocks, rows, D]`, weighted by the softmax of their logarithms `[..., blocks, rows]`,
    block by block; a logarithm of -inf stands for no block. Returns `[..., rows, D]`."""
    num_blocks, rows = logarithms.shape[-2:]
    padded = logarithms.new_full((*logarithms.shape[:-2], rows, -(-num_blocks // LANES) * LANES), float("-inf"))
    padded[..., :num_blocks] = logarithms.transpose(-2, -1)
    weights = padded.softmax(-1)
    out = outputs[..., 0, :, :] * weights[..., :1]
    for block in range(1, num_blocks):
        out.addcmul_(outputs[..., block, :, :], weights[..., block : block + 1])
    return out


def find_reads(tiles: Sequence[Tile], page_size: int, window: int | None = None) -> list[Read]:
    """Find the reads of `tiles`: tokens that see a whole block read it together, across tiles; tokens that see part of
    a block read it with their neighbours of the same tile. Which of the two applies depends only on a token's
    position."""
    width = BLOCK // page_size
    whole: dict[tuple[int, ...], list[int]] = {}
    reads: list[Read] = []
    for tile in tiles:
        for at, start, count in _cut_at_blocks(tile):
            if window is not None:
                reads += _find_windowed(tile, at, start, count, width, window, whole)
                continue
            last = start // BLOCK
            places = range(at, at + count)
            for block in range(last):
                whole.setdefault((block, *tile.pages[block * width : (block + 1) * width]), []).extend(places)
            reads.append(Read(last, tile.pages[last * width : (last + 1) * width], places, start - last * BLOCK + 1))
    for (block, *pages), sharing in whole.items():
        reads += [Read(block, pages, sharing[at : at + TILE]) for at in range(0, len(sharing), TILE)]
    return reads


def _find_windowed(
    tile: Tile, at: int, start: int, count: int, width: int, window: int, whole: dict[tuple[int, ...], list[int]]
) -> Iterator[Read]:
    """Return the reads, of `width` pages each, in which `count` tokens of one block see part of a block; reads of whole
    blocks are added to `whole`."""
    last = start // BLOCK
    # The first position that the first token sees; each further one sees from one later on.
    first_seen = start - window + 1
    for block in range(max(0, first_seen) // BLOCK, last):
        begin, pages = block * BLOCK, tile.pages[block * width : (block + 1) * width]
        num_whole = min(count, max(0, begin - first_seen + 1))
        whole.setdefault((block, *pages), []).extend(range(at, at + num_whole))
        # Of the other tokens, those that still see a key of the block.
        num_seeing = min(count, begin + BLOCK - first_seen)
        if num_seeing > num_whole:
            partial = range(at + num_whole, at + num_seeing)
            yield Read(block, pages, partial, num_unseen=first_seen + num_whole - begin)
    pages, begin = tile.pages[last * width : (last + 1) * width], last * BLOCK
    # Separates tokens that see the block from its beginning from those that do not.
    split = at + min(count, max(0, begin - first_seen + 1))
    for places in (range(at, split), range(split, at + count)):
        if places:
            offset = places[0] - at
            yield Read(last, pages, places, start + offset - begin + 1, max(0, first_seen + offset - begin))


def _cut_at_blocks(tile: Tile) -> Iterator[tuple[int, int, int]]:
    """Yield place, position and number of the tile's tokens in each block."""
    at, start, end = tile.at, tile.start, tile.start + tile.count
    while start < end:
        count = min(end, (start // BLOCK + 1) * BLOCK) - start
        yield at, start, count
        at, start = at + count, start + count


def _cut_sections(tiles: Sequence[Tile], geometry: Geometry) -> list[list[Tile]]:
    """Cut tiles, in order, into sections whose partial outputs fit into `PART_ELEMENTS`."""
    sections: list[list[Tile]] = []
    num_tokens = longest = 0
    for tile in tiles:
        num_tokens, longest = num_tokens + tile.count, max(longest, _num_blocks(tile))
        if not sections or num_tokens * longest * geometry.largest.num_heads * geometry.largest.key_dim > PART_ELEMENTS:
            sections.append([])
            num_tokens, longest = tile.count, _num_blocks(tile)
        sections[-1].append(tile)
    return sections


def _num_blocks(tile: Tile) -> int:
    """Return the number of blocks that the tile's last token sees."""
    return -(-(tile.start + tile.count) // BLOCK)


def _build_section(tiles: list[Tile], memory: PagedMemory, window: int | None) -> _Section:
    first, num_blocks = tiles[0].at, max(map(_num_blocks, tiles))
    like: dict[tuple[int, int, bool, bool], list[Read]] = {}
    for read in find_reads(tiles, memory.page_size, window):
        span = padded_span(len(read.places) - 1 + read.num_seen) if read.num_seen else BLOCK
        kind = (bucket(len(read.places)), span, read.num_seen is None, read.num_unseen > 0)
        like.setdefault(kind, []).append(read)
    batches = []
    for (size, span, *_), reads in like.items():
        most = max(1, memory.gather_elements // (span * memory.geometry.largest.token_size))
        for at in range(0, len(reads), most):
            batches.append(_build_batch(reads[at : at + most], size, span, memory, first, num_blocks))
    return _Section(first, sum(tile.count for tile in tiles), num_blocks, batches)


def _build_batch(reads: list[Read], size: int, span: int, memory: PagedMemory, first: int, num_blocks: int) -> _Batch:
    """Build the batch of `reads`, all with a mask or all without, for a section that begins at place `first`."""
    width = span // memory.page_size
    pages = np.array([[*read.pages[:width], *[BLANK_PAGE] * (width - len(read.pages))] for read in reads])
    places = np.array([[*read.places, *[read.places[-1]] * (size - len(read.places))] for read in reads])
    places -= first
    parts = places * num_blocks + np.array([[read.block] for read in reads])
    return _Batch(
        size,
        torch.from_numpy(pages.reshape(-1)),
        span,
        torch.from_numpy(places.reshape(-1)),
        torch.from_numpy(parts.reshape(-1)),
        _build_mask(reads, places, span, memory.geometry.layers[0].repeats),
    )


def _build_mask(reads: list[Read], places: np.ndarray, span: int, repeats: int) -> torch.Tensor | None:
    """Build the mask of a batch; None if its tokens see whole blocks."""
    if reads[0].num_seen is None and not reads[0].num_unseen:
        return None
    rows = 1 if places.shape[1] == 1 else repeats

    def lay(counts: list[int]) -> torch.Tensor:
        """Lay out counts as `[reads, 1, rows, 1]`: each read's count for its first token, plus one for each further
        token."""
        by_token = torch.from_numpy(places - places[:, :1] + np.array(counts)[:, None])
        return by_token.repeat_interleave(rows, dim=1)[:, None, :, None]

    is_seen = torch.ones(1, dtype=torch.bool)
    if reads[0].num_seen is not None:
        is_seen = is_seen & (torch.arange(span) < lay([read.num_seen or 0 for read in reads]))
    if reads[0].num_unseen:
        is_seen = is_seen & (torch.arange(span) >= lay([read.num_unseen for read in reads]))
    return torch.where(is_seen, 0.0, float("-inf"))
