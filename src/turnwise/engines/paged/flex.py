"""Attention for a GPU that reads keys and values in place from the paged memory, without copying pages.

`torch.nn.attention.flex_attention` takes, per tile, a list of blocks of keys to read; here a block is a page and the
list is the request's page table, so one kernel reads scattered pages in place and skips all others. The memory of a
layer is one "sequence" of all its slots with a batch dimension of one, which the kernels share among the tiles. Inside
a page the kernels ask `mask_mod` slot by slot.

A block is a whole page: torch's kernels take keys in pieces (`BLOCK_N`) that must divide the block, and a matrix unit
needs at least 16; pages have 16, 32 or 64 slots. A piece is a page, half of one of 64, where wide heads would not fit
into shared memory. All blocks are "partial" ones, masked slot by slot: with "full" ones beside them, the kernel for few
queries would share out its work by the size of the whole memory instead of by the length of the request.

On CUDA the kernel is compiled, once for each number of tiles and rows (both rounded up to powers of two); torch keeps
what it compiled on disk. Elsewhere it runs eagerly over all slots of the memory, which suffices for tests. **It never
ran on a GPU yet.**"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from turnwise.engines.paged.attention import PagedMemory, PagedPlan, Tile
from turnwise.models.attention import PLAIN, Rules
from turnwise.models.invariant import TILE

COMPILED_DEVICES = ("cuda",)
"""Device types on which the kernel is compiled; elsewhere it runs eagerly."""
MIN_HEAD_DIM = 16
"""Smallest head size that the compiled kernel supports."""
MIN_TILE_ROWS = 16
"""Fewest rows to which a tile of several tokens is padded: the fewest that a matrix unit works on."""
MAX_KEYS = 32
"""Most keys that a kernel reads at once."""
QUERY_BLOCK = 128
"""Query rows that share a list of pages: all rows of a tile, and at least as many as a kernel reads at once
(`BLOCK_M`), which must divide it."""
MAX_SHAPES = 128
"""Most kernels compiled in one process: three numbers of rows, and powers of two for the number of tiles."""


@dataclass(frozen=True, slots=True)
class TileBatch:
    """Tiles computed together, as tensors on the memory's device."""

    pages: torch.Tensor
    """`[n, W]` int32: the pages of each tile's request that it may see, in order, then zeros."""
    num_pages: torch.Tensor
    """`[n]` int32: number of these pages; 0 for a tile that only pads the batch, whose output is zero."""
    positions: torch.Tensor
    """`[n, num_rows]` int32: position of each row's token in its request."""
    places: torch.Tensor
    """`[n, pages of the memory]` int32: the inverse of `pages`, i.e. the place of each page in the request, -1 if it
    has none. The entry of the blank page 0 is unused: no list contains it."""

    @classmethod
    def of(
        cls, pages: torch.Tensor, num_pages: torch.Tensor, positions: torch.Tensor, memory: PagedMemory
    ) -> TileBatch:
        """Build a batch, with the page tables inverted. Tensor operations only, so it can be part of a captured
        graph."""
        count, width = pages.shape
        order = torch.arange(width, dtype=torch.int32, device=pages.device).expand(count, width)
        places = torch.full((count, memory.num_pages), -1, dtype=torch.int32, device=pages.device).scatter_(
            1, pages.long(), order
        )
        # The zeros after a table's end map the blank page to a place that no row of the tile has reached.
        return cls(pages, num_pages, positions, places)


@dataclass(frozen=True, slots=True)
class FlexGroup:
    """A batch of tiles and the places of its rows in the flat batch."""

    batch: TileBatch
    rows: torch.Tensor | None = None
    """`[n * num_rows]` places in the flat batch, each tile padded by repeating its last token; None if they are the
    whole flat batch."""
    num_used: int = 0
    """Number of leading `rows` whose output is used; the others belong to padding tiles."""


class FlexAttention(PagedPlan):
    """The attention plan of one engine step that copies no pages."""

    def __init__(self, memory: PagedMemory, slots: torch.Tensor, groups: Sequence[FlexGroup]) -> None:
        """See `PagedPlan` for `slots`. Every row with a slot is in one of `groups`."""
        super().__init__(memory, slots)
        self._groups = groups

    @classmethod
    def of(cls, memory: PagedMemory, tiles: Sequence[Tile], slots: torch.Tensor, *, max_pages: int) -> FlexAttention:
        """`tiles` are in the order of the flat batch, shorter ones first; `max_pages` is the most pages a request can
        have."""
        groups = [
            build_group(list(group), num_rows, memory, max_pages) for num_rows, group in groupby(tiles, key=_num_rows)
        ]
        return cls(memory, slots, groups)

    def read(self, layer: int, query: torch.Tensor, scaling: float, rules: Rules = PLAIN) -> torch.Tensor:
        """See `PagedPlan`."""
        value_dim = self._memory.geometry.layers[layer].value_dim
        out = torch.zeros(*query.shape[:2], value_dim, dtype=query.dtype, device=query.device)
        for group in self._groups:
            mine = query if group.rows is None else query.index_select(0, group.rows)
            mine = mine.unflatten(0, group.batch.positions.shape)
            done = attend_pages(mine, self._memory, layer, group.batch, scaling, rules)
            done = done.reshape(-1, query.shape[1], value_dim)
            if group.rows is None:
                return done
            # Repeated places hold equal rows.
            out.index_copy_(0, group.rows[: group.num_used], done[: group.num_used])
        return out


def attend_pages(
    query: torch.Tensor,
    memory: PagedMemory,
    layer: int,
    batch: TileBatch,
    scaling: float,
    rules: Rules = PLAIN,
) -> torch.Tensor:
    """Attend with `query [n, num_rows, heads, D]` to the pages of `batch`. Returns `[n, num_rows, heads, E]`.

    A row sees the slots of its request's listed pages up to its own position, the last `rules.window` of them. Tensor
    operations only.
    """
    shape, size = memory.geometry.layers[layer], memory.page_size
    positions, places = batch.positions, batch.places
    window, softcap = rules.window, rules.softcap or 0.0

    def sees(tile: torch.Tensor, head: torch.Tensor, row: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        place, position = places[tile, slot // size], positions[tile, row]
        at = place * size + slot % size
        is_seen = (place >= 0) & (at <= position)
        return is_seen if window is None else is_seen & (at > position - window)

    def cap(score: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return (score / softcap).tanh() * softcap

    num_tiles, num_rows = positions.shape
    keys, values = (part.transpose(1, 2) for part in memory.split(layer, memory.layers[layer][None]))
    mask = BlockMask.from_kv_blocks(
        batch.num_pages.view(num_tiles, 1, 1),
        batch.pages.view(num_tiles, 1, 1, -1),
        BLOCK_SIZE=(QUERY_BLOCK, size),
        mask_mod=sees,
        seq_lengths=(num_rows, keys.shape[2]),
        compute_q_blocks=False,
    )
    kernel = _compiled() if query.device.type in COMPILED_DEVICES else _run_eagerly
    settings: dict[str, Any] = {
        "block_mask": mask,
        "scale": scaling,
        "enable_gqa": shape.repeats > 1,
        "kernel_options": kernel_options(num_rows, size),
    }
    if softcap:
        settings["score_mod"] = cap
    if rules.sinks is None:
        return kernel(query.transpose(1, 2), keys, values, **settings).transpose(1, 2)  # type: ignore[no-any-return]
    done, extra = kernel(query.transpose(1, 2), keys, values, **settings, return_aux=AuxRequest(lse=True))
    # A sink takes part of the softmax's mass: the rest keeps sum / (sum + exp(sink)).
    kept = (extra.lse - rules.sinks.float()[None, :, None]).sigmoid()
    kept_done: torch.Tensor = (done * kept[..., None].to(done.dtype)).transpose(1, 2)
    return kept_done


def kernel_options(num_rows: int, page_size: int) -> dict[str, Any]:
    """Return the options for torch's Triton kernels, whose defaults use larger pieces than a page or a tile.

    Single tokens use the kernel for few queries, which computes all heads that share keys together and splits long
    requests; longer tiles use the general one, because the former would hold all rows of all those heads at once."""
    num_keys = min(page_size, MAX_KEYS)
    if num_rows == 1:
        return {"BLOCK_N": num_keys}
    return {"BLOCK_N": num_keys, "BLOCK_M": num_rows, "num_warps": 4, "FORCE_USE_FLEX_ATTENTION": True}


def build_group(tiles: list[Tile], num_rows: int, memory: PagedMemory, max_pages: int) -> FlexGroup:
    """Build the tables of tiles padded to `num_rows` tokens, with empty tiles added until their number is a power of
    two."""
    size, used = memory.page_size, len(tiles)
    count = 1 << (used - 1).bit_length()
    # One array, one copy to the device: number of pages, positions, rows, pages.
    table = np.zeros((count, 1 + 2 * num_rows + max_pages), dtype=np.int32)
    steps = np.arange(num_rows)
    for line, tile in zip(table, tiles, strict=False):
        offsets = np.minimum(steps, tile.count - 1)
        seen = -(-(tile.start + tile.count) // size)
        line[0] = seen
        line[1 : 1 + num_rows] = tile.start + offsets
        line[1 + num_rows : 1 + 2 * num_rows] = tile.at + offsets
        line[1 + 2 * num_rows : 1 + 2 * num_rows + seen] = tile.pages[:seen]
    num_pages, positions, rows, pages = (
        torch.from_numpy(table).to(memory.layers[0].device).split([1, num_rows, num_rows, max_pages], dim=1)
    )
    batch = TileBatch.of(pages.contiguous(), num_pages.reshape(-1), positions.contiguous(), memory)
    return FlexGroup(batch, rows.reshape(-1).long(), used * num_rows)


def _num_rows(tile: Tile) -> int:
    """Return the number of rows to which a tile is padded; few different values, because a kernel is compiled for
    each."""
    return 1 if tile.count == 1 else MIN_TILE_ROWS if tile.count <= MIN_TILE_ROWS else TILE


@cache
def _compiled() -> Callable[..., Any]:
    """Return the kernel, compiled for the exact shapes of each call: the one for few queries needs to know the number
    of tiles."""
    # Beyond this limit, 8 by default, torch refuses further shapes.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MAX_SHAPES)
    compiled: Callable[..., Any] = torch.compile(flex_attention, fullgraph=True, dynamic=False)
    return compiled


def _run_eagerly(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    block_mask: BlockMask,
    kernel_options: dict[str, Any],
    **settings: Any,
) -> Any:
    """Compute the same function eagerly, for tests: torch's eager version computes all slots and applies only the mask.

    Pages that are not listed are blanked first, because the compiled kernels do not read them: neither a page missing
    from its list nor a non-finite number in another request's page affects the result.
    """
    pages, size = block_mask.kv_indices[:, 0, 0].long(), block_mask.BLOCK_SIZE[1]
    within = torch.arange(pages.shape[1], device=pages.device) < block_mask.kv_num_blocks.view(-1, 1)
    listed = torch.zeros(len(pages), keys.shape[2] // size, dtype=torch.int32, device=pages.device)
    hidden = listed.scatter_add_(1, pages, within.int()).repeat_interleave(size, dim=1)[:, None, :, None] == 0
    with torch.compiler.set_stance("force_eager"):
        return flex_attention(
            query, keys.masked_fill(hidden, 0), values.masked_fill(hidden, 0), block_mask=block_mask, **settings
        )
