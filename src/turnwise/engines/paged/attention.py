"""Paged key-value memory, and attention over it whose result for a token has the same bits however it is batched.

One kernel (scaled-dot-product attention with an explicit mask) serves single tokens, prompts and observations. Work is
cut into *tiles*: up to `TILE` consecutive query tokens of one request. Tiles of similar size are computed together;
each group gathers its pages into a buffer small enough to stay in the processor's cache.

A row's result does not depend on the rest of its batch (CPU, float32, one thread; `models.invariant` says why, a test
holds it bit for bit), so decoding, prefill in chunks of any size, and prefill after a shared prefix agree in every bit.
This module knows nothing about requests, sampling or model families."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.models.attention import PLAIN, Rules, hide
from turnwise.models.invariant import attend_rows, find_seen, padded_span
from turnwise.models.routing import RoutingShape
from turnwise.models.shapes import LayerShape, measure_layers

GATHER_ELEMENTS = 1 << 19
"""Numbers gathered from the cache at once on the CPU; 2 MiB in float32."""
GPU_GATHER_ELEMENTS = 1 << 26
"""The same on a GPU, where every piece costs kernel launches and no cache is that small; 128 MiB in bfloat16."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Shapes of a model's key-value cache."""

    layers: tuple[LayerShape, ...]

    @classmethod
    def of_same(cls, *, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int) -> Geometry:
        """Return the geometry of layers that are all alike, with keys as large as values."""
        shape = LayerShape(num_heads=num_heads, num_kv_heads=num_kv_heads, key_dim=head_dim, value_dim=head_dim)
        return cls((shape,) * num_layers)

    @classmethod
    def of(cls, model: PreTrainedModel) -> Geometry:
        """Measure a model that runs with Turnwise's attention."""
        return cls(measure_layers(model))

    @property
    def largest(self) -> LayerShape:
        """The layer with the most numbers per token."""
        return max(self.layers, key=lambda shape: shape.token_size)

    @property
    def smallest_head(self) -> int:
        """Size of the smallest head, of keys or values."""
        return min(min(shape.key_dim, shape.value_dim) for shape in self.layers)


class PagedMemory:
    """Keys and values of all pages: one tensor `[num_pages * page_size, kv_heads * (D + E)]` per layer, keys of size D
    before values of size E in a row. For a mixture-of-experts model also every token's experts, so that a shared page
    records how it was computed."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
        routing: RoutingShape | None = None,
    ) -> None:
        """`num_pages` includes the blank page 0, which stays zero: the stand-in for a missing page must be finite."""
        self.geometry = geometry
        self.num_pages = num_pages
        self.page_size = page_size
        self.layers = [
            torch.zeros(num_pages * page_size, shape.token_size, dtype=dtype, device=device)
            for shape in geometry.layers
        ]
        self.experts = None
        """`[num_pages * page_size, layers with a router, k]` uint8; None for a dense model."""
        if routing is not None:
            choices = (num_pages * page_size, routing.num_layers, routing.num_chosen)
            self.experts = torch.zeros(choices, dtype=torch.uint8, device=device)
        self.gathered = torch.empty(0, dtype=dtype, device=device)
        self.gather_elements = GATHER_ELEMENTS if device.type == "cpu" else GPU_GATHER_ELEMENTS

    def pages(self, layer: int) -> torch.Tensor:
        """Return a layer's memory as `[num_pages, page_size * kv_heads * (D + E)]`."""
        return self.layers[layer].view(-1, self.page_size * self.geometry.layers[layer].token_size)

    def gather(self, layer: int, pages: torch.Tensor) -> torch.Tensor:
        """Copy these pages into a buffer that the next call overwrites."""
        width = self.page_size * self.geometry.layers[layer].token_size
        if self.gathered.numel() < len(pages) * width:
            self.gathered = self.gathered.new_empty(len(pages) * width)
        return torch.index_select(
            self.pages(layer), 0, pages, out=self.gathered[: len(pages) * width].view(len(pages), width)
        )

    def split(self, layer: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split rows `[n, span, kv_heads * (D + E)]` into keys `[..., kv_heads, D]` and values `[..., kv_heads, E]`."""
        shape = self.geometry.layers[layer]
        keys, values = rows.split([shape.num_kv_heads * shape.key_dim, shape.num_kv_heads * shape.value_dim], dim=-1)
        return keys.unflatten(-1, (shape.num_kv_heads, -1)), values.unflatten(-1, (shape.num_kv_heads, -1))

    def copy_pages(self, copies: list[tuple[int, int]]) -> None:
        """Copy whole pages `(source, destination)`; all sources are read before any destination is written."""
        sources, destinations = torch.tensor(copies, device=self.layers[0].device).unbind(1)
        for layer in range(len(self.layers)):
            pages = self.pages(layer)
            pages.index_copy_(0, destinations, pages.index_select(0, sources))
        if self.experts is not None:
            chosen = self.experts.view(self.num_pages, -1)
            chosen.index_copy_(0, destinations, chosen.index_select(0, sources))

    def scrub(self, pages: list[int]) -> None:
        """Zero pages that may hold non-finite numbers: a masked NaN still spoils a sum."""
        for layer in range(len(self.layers)):
            self.pages(layer).index_fill_(0, torch.tensor(pages, device=self.layers[0].device), 0.0)


class Tile(Protocol):
    """Consecutive query tokens of one request, at most `TILE`."""

    @property
    def at(self) -> int:
        """Index of the first token in the flat batch."""
        ...

    @property
    def start(self) -> int:
        """Position of the first token in its request."""
        ...

    @property
    def count(self) -> int:
        """Number of tokens."""
        ...

    @property
    def pages(self) -> list[int]:
        """Pages of the request, in order."""
        ...


@dataclass(frozen=True, slots=True)
class _Group:
    """Tiles computed together, each filled up to `num_rows` tokens by repeating its last one."""

    num_tiles: int
    num_rows: int
    span: int
    first: int
    """Index of the first tile's first token in the flat batch; single-token tiles follow each other."""
    rows: torch.Tensor | None
    """`[num_tiles * num_rows]` indices in the flat batch; None for single-token tiles."""
    pages: torch.Tensor
    """`[num_tiles * span / page_size]`."""
    positions: torch.Tensor
    """`[num_tiles, num_rows]` positions of the tokens in their requests."""
    masks: dict[tuple[int | None, int], torch.Tensor] = field(default_factory=dict)
    """Masks made so far, by window and heads per kv head: most models have one or two kinds of layers."""

    def find_mask(self, window: int | None, repeats: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the additive mask `[num_tiles, 1, num_rows * repeats, span]` of layers with this `window`."""
        if (window, repeats) not in self.masks:
            positions = self.positions.repeat_interleave(repeats, dim=1)[:, None, :, None]
            self.masks[window, repeats] = hide(find_seen(positions, self.span, window), dtype)
        return self.masks[window, repeats]


class PagedPlan(ABC):
    """The attention plan of one engine step (`models.attention.AttentionPlan`): writes keys and values; subclasses read
    them."""

    def __init__(self, memory: PagedMemory, slots: torch.Tensor) -> None:
        """`slots [T]` says where each token's keys and values are written.

        Further rows of the flat batch are padding: nothing is written for them and their output is zero.
        """
        self._memory = memory
        self._slots = slots

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        rules: Rules = PLAIN,
    ) -> torch.Tensor:
        """See `AttentionPlan`."""
        count = len(self._slots)
        self.write(layer, torch.cat([key[:count].reshape(count, -1), value[:count].reshape(count, -1)], dim=1))
        return self.read(layer, query, scaling, rules)

    def write(self, layer: int, rows: torch.Tensor) -> None:
        """Store the keys and values `[T, kv_heads * (D + E)]` of the new tokens."""
        self._memory.layers[layer].index_copy_(0, self._slots, rows[: len(self._slots)])

    @abstractmethod
    def read(self, layer: int, query: torch.Tensor, scaling: float, rules: Rules = PLAIN) -> torch.Tensor:
        """Attend with `query [T, heads, D]` to everything written so far. Returns `[T, heads, E]`."""


class PagedAttention(PagedPlan):
    """Gathers the pages of each request and attends to the copies: on the CPU, invariant scoring repeats this plan bit
    for bit."""

    def __init__(self, memory: PagedMemory, tiles: list[Tile], slots: torch.Tensor) -> None:
        """`tiles` are in the order of the flat batch: single tokens first, by increasing start."""
        super().__init__(memory, slots)
        self._groups = [self._build_group(group) for group in group_tiles(tiles, memory)]

    def read(self, layer: int, query: torch.Tensor, scaling: float, rules: Rules = PLAIN) -> torch.Tensor:
        """See `PagedPlan`."""
        shape = self._memory.geometry.layers[layer]
        kv_heads, dim = shape.num_kv_heads, shape.key_dim
        out = torch.empty(*query.shape[:2], shape.value_dim, dtype=query.dtype, device=query.device)
        out[len(self._slots) :] = 0
        for group in self._groups:
            n, rows = group.num_tiles, group.num_rows
            cached = self._memory.gather(layer, group.pages).view(n, group.span, -1)
            keys, values = (part.transpose(1, 2) for part in self._memory.split(layer, cached))
            mask = group.find_mask(rules.window, 1 if rows == 1 else shape.repeats, query.dtype)
            if group.rows is None:
                mine = query[group.first : group.first + n].view(n, kv_heads, -1, dim)
                out[group.first : group.first + n] = attend_rows(mine, keys, values, mask, scaling, rules).reshape(
                    n, -1, shape.value_dim
                )
            else:
                mine = (
                    query.index_select(0, group.rows)
                    .view(n, rows, kv_heads, -1, dim)
                    .transpose(1, 2)
                    .reshape(n, kv_heads, -1, dim)
                )
                done = (
                    attend_rows(mine, keys, values, mask, scaling, rules)
                    .view(n, kv_heads, rows, -1, shape.value_dim)
                    .transpose(1, 2)
                )
                # Repeated places hold equal rows.
                out.index_copy_(0, group.rows, done.reshape(n * rows, -1, shape.value_dim))
        return out

    def _build_group(self, tiles: list[Tile]) -> _Group:
        device = self._slots.device
        size = self._memory.page_size
        span = padded_span(max(tile.start + tile.count for tile in tiles))
        table = np.zeros((len(tiles), span // size), dtype=np.int64)
        for row, tile in enumerate(tiles):
            used = tile.pages[: span // size]
            table[row, : len(used)] = used
        num_rows = bucket(max(tile.count for tile in tiles))
        offsets = np.minimum(np.arange(num_rows)[None], np.array([tile.count - 1 for tile in tiles])[:, None])
        positions = torch.from_numpy(offsets + np.array([tile.start for tile in tiles])[:, None]).to(device)
        rows = None
        if num_rows > 1:
            rows = torch.from_numpy((offsets + np.array([tile.at for tile in tiles])[:, None]).reshape(-1)).to(device)
        return _Group(
            len(tiles), num_rows, span, tiles[0].at, rows, torch.from_numpy(table.reshape(-1)).to(device), positions
        )


def bucket(count: int) -> int:
    """Return the number of rows to which a tile of `count` tokens is padded: 1, or the next power of two from 4 on."""
    return 1 if count == 1 else max(4, 1 << (count - 1).bit_length())


def group_tiles(tiles: list[Tile], memory: PagedMemory) -> list[list[Tile]]:
    """Group tiles in order: a new group begins where the bucket changes or the gathered pages would exceed
    `gather_elements`."""
    groups: list[list[Tile]] = []
    width = longest = 0
    for tile in tiles:
        span = padded_span(tile.start + tile.count)
        longest = max(longest, span)
        full = (
            bool(groups)
            and (len(groups[-1]) + 1) * longest * memory.geometry.largest.token_size > memory.gather_elements
        )
        if not groups or full or bucket(tile.count) != width:
            groups.append([])
            width, longest = bucket(tile.count), span
        groups[-1].append(tile)
    return groups
