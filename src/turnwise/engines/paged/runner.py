"""Computes the logits of planned items: lays tokens end to end, builds the attention plan, runs the model.

Runs the model's own modules, or the fused decoder where the family has one. On a CPU in float32 the fused decoder reads
shared pages once; on a GPU, if configured, it reads pages in place and repeats recorded decoding steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import Session
from turnwise.engines.paged.attention import Geometry, PagedAttention, PagedMemory, PagedPlan, bucket
from turnwise.engines.paged.cascade import CascadeAttention
from turnwise.engines.paged.flex import COMPILED_DEVICES, MIN_HEAD_DIM, FlexAttention
from turnwise.engines.paged.fused import FusedDecoder, why_not
from turnwise.engines.paged.generic import GenericRunner
from turnwise.engines.paged.graphs import DecodeGraphs, DecodeRow, Record, record_cuda_graphs
from turnwise.engines.paged.routing import RecordedRouting
from turnwise.engines.paged.scheduler import Item
from turnwise.engines.paged.seeing import KnownPictures, number_step
from turnwise.models.checksums import compute_checksums
from turnwise.models.invariant import MIN_BATCH_ROWS, TILE
from turnwise.models.paths import is_fast
from turnwise.models.rope import depends_on_length, pin_length
from turnwise.models.routing import Routing, find_routing
from turnwise.models.vision.eyes import find_eyes
from turnwise.models.vision.placing import Placed, show


@dataclass(frozen=True, slots=True)
class _Tile:
    at: int
    start: int
    count: int
    pages: list[int]
    item: int
    """Index of its item."""


class Runner(Protocol):
    """Computes the steps of an engine."""

    model: PreTrainedModel
    vocab_size: int
    is_fused: bool
    """Whether packed weights run instead of the model's modules."""
    pictures: KnownPictures | None
    """Features of pictures; None if the model, or this runner, reads text only."""

    @property
    def experts(self) -> torch.Tensor | None:
        """`[num_pages * page_size, layers with a router, k]` uint8; None if none are recorded."""
        ...

    def weights_stamp(self) -> int:
        """Return a number that grows whenever a parameter is changed in place, as counted by autograd."""
        ...

    def renew(self) -> None:
        """Take over changed weights."""
        ...

    def compute_checksums(self) -> dict[str, int]:
        """Return one checksum per parameter with which the next step samples."""
        ...

    def copy_pages(self, copies: list[tuple[int, int]]) -> None:
        """Copy whole pages `(source, destination)`."""
        ...

    def scrub(self, pages: list[int]) -> None:
        """Forget pages that may hold non-finite numbers."""
        ...

    def forget(self, session: Session) -> None:
        """Forget the conversation."""
        ...

    def run(self, items: Sequence[Item]) -> torch.Tensor:
        """Compute the logits `[R, V]`: for each item that samples, in order, the row of its last known token and one
        per drafted token after it."""
        ...


class ModelRunner:
    """One model on the fast path and its paged memory. Implements `Runner`."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        num_pages: int,
        page_size: int,
        max_context: int,
        fused: bool | None,
        attention: Literal["gather", "flex"] = "gather",
        cuda_graphs: bool = False,
        recorder: Callable[[], Record] = record_cuda_graphs,
    ) -> None:
        """`fused` None uses the fused decoder if the family has one; True raises EngineError if it has none.

        `attention` and `cuda_graphs` are those of `PagedEngine`; raises EngineError if they cannot work. `recorder`
        builds the recorder of graphs, again for new weights."""
        if depends_on_length(model):
            pin_length(model, max_context)
        geometry = Geometry.of(model)
        reason = why_not(model, geometry.layers)
        if fused and reason:
            raise EngineError(f"the model cannot run fused: {reason}; use its modules (fused=False)")
        self.model = model
        self.vocab_size = int(model.config.get_text_config().vocab_size)
        self.is_fused = fused is not False and reason is None
        eyes = find_eyes(model)
        self.pictures = None if eyes is None else KnownPictures(model, eyes)
        if attention == "flex" and model.device.type in COMPILED_DEVICES and geometry.smallest_head < MIN_HEAD_DIM:
            raise EngineError(
                f"attention='flex' needs heads of size {MIN_HEAD_DIM} or more, but one has {geometry.smallest_head}; "
                "use attention='gather'"
            )
        if cuda_graphs:
            _check_graphs(
                model,
                attention,
                None if self.is_fused else reason or "fused=False",
                needs_cuda=recorder is record_cuda_graphs,
            )
        # Before the requests' pages comes the blank page; after them one to which graphs write rows of no request.
        self.memory = PagedMemory(
            geometry,
            num_pages=num_pages + 1 + cuda_graphs,
            page_size=page_size,
            dtype=model.dtype,
            device=model.device,
            routing=find_routing(model),
        )
        self._max_context = max_context
        self._max_pages = -(-max_context // page_size)
        self._is_flex = attention == "flex"
        # The model's modules keep the arithmetic that invariant scoring repeats bit for bit.
        self._is_cascade = self.is_fused and model.device.type == "cpu" and model.dtype == torch.float32
        self._recorder = recorder if cuda_graphs else None
        self._graphs: DecodeGraphs | None = None
        self._decoder: FusedDecoder | None = None
        self._parameters = list(model.parameters())

    @property
    def experts(self) -> torch.Tensor | None:
        """See `Runner.experts`."""
        return self.memory.experts

    def copy_pages(self, copies: list[tuple[int, int]]) -> None:
        """See `Runner.copy_pages`."""
        self.memory.copy_pages(copies)

    def scrub(self, pages: list[int]) -> None:
        """See `Runner.scrub`."""
        self.memory.scrub(pages)

    def forget(self, session: Session) -> None:
        """See `Runner.forget`: pages are the scheduler's."""

    def weights_stamp(self) -> int:
        """Return a number that grows whenever a parameter is changed in place, as counted by autograd. A fused
        optimizer's step is not counted, nor are changes through `.data`: after these only `adopt` tells the engine."""
        return sum(parameter._version for parameter in self._parameters)

    def renew(self) -> None:
        """Take over changed weights: packed copies and graphs, which hold their addresses, are rebuilt at the next
        step."""
        self._graphs = None
        self._decoder = None
        if self.pictures is not None:
            self.pictures.renew()

    def compute_checksums(self) -> dict[str, int]:
        """Return one checksum per parameter with which the next step samples; packs the weights if they are not packed.

        A packed weight keeps its checksum from the time of packing, so an outdated packed copy is detected."""
        packed = self._pack().packed_checksums if self.is_fused else {}
        return compute_checksums(self.model, packed)

    @torch.inference_mode()
    def run(self, items: Sequence[Item]) -> torch.Tensor:
        """Compute the logits `[R, V]`: for each item that samples, in order, the row of its last known token and one
        per drafted token after it.

        Writes the items' keys and values. The next call may overwrite the logits.
        """
        if self._recorder is not None and all(item.count == 1 for item in items):
            return self._repeat(items, self._recorder)
        tiles = _lay_out(items)
        ids: list[int] = []
        size = self.memory.page_size
        slots = np.empty(sum(tile.count for tile in tiles), dtype=np.int64)
        positions = np.zeros(max(MIN_BATCH_ROWS, len(slots)), dtype=np.int64)
        last = [0] * len(items)
        for tile in tiles:
            end = tile.start + tile.count
            ids += items[tile.item].request.tokens[tile.start : end]
            ids += items[tile.item].draft
            if tile.count == 1:
                positions[tile.at] = tile.start
                slots[tile.at] = tile.pages[tile.start // size] * size + tile.start % size
            else:
                span = np.arange(tile.start, end)
                positions[tile.at : tile.at + tile.count] = span
                slots[tile.at : tile.at + tile.count] = np.array(tile.pages)[span // size] * size + span % size
            if end == items[tile.item].start + items[tile.item].count:
                last[tile.item] = tile.at + tile.count - 1
        ids += [0] * (len(positions) - len(ids))
        starts = [(tile.item, tile.start, tile.count, tile.at) for tile in tiles]
        shown = [item.request.images for item in items]
        written = torch.from_numpy(slots).to(self.model.device)
        # A drafted item is one tile, so its rows follow each other.
        rows = [
            row - back
            for row, item in zip(last, items, strict=True)
            if item.samples
            for back in range(len(item.draft), -1, -1)
        ]
        num_rows = len(rows)
        rows += [rows[-1] if rows else 0] * (MIN_BATCH_ROWS - num_rows)
        device = self.model.device
        return self._forward(
            torch.tensor(ids, device=device),
            torch.from_numpy(number_step(shown, starts, positions)).to(device),
            None if self.pictures is None else self.pictures.place(shown, starts),
            self._plan(tiles, written),
            torch.tensor(rows, device=device),
            None if self.memory.experts is None else RecordedRouting(self.memory.experts, written),
        )[:num_rows]

    def _plan(self, tiles: list[_Tile], slots: torch.Tensor) -> PagedPlan:
        if self._is_flex:
            return FlexAttention.of(self.memory, tiles, slots, max_pages=self._max_pages)
        if self._is_cascade:
            return CascadeAttention(self.memory, tiles, slots)
        return PagedAttention(self.memory, list(tiles), slots)

    def _repeat(self, items: Sequence[Item], recorder: Callable[[], Record]) -> torch.Tensor:
        """Run a step of single tokens by its graph, recording one if there is none of its size yet."""
        if self._graphs is None:
            self._graphs = DecodeGraphs(
                self.memory,
                self._pack().run,
                max_pages=self._max_pages,
                spare_page=self.memory.num_pages - 1,
                record=recorder(),
            )
        rows = []
        for item in items:
            assert item.request.lease is not None
            rows.append(DecodeRow(item.request.tokens[item.start], item.start, item.request.lease.pages))
        logits = self._graphs.run(rows)
        sampling = [row for row, item in enumerate(items) if item.samples]
        return logits if len(sampling) == len(items) else logits[sampling]

    def _forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        placed: Placed | None,
        plan: PagedPlan,
        rows: torch.Tensor,
        routing: Routing | None,
    ) -> torch.Tensor:
        if self.is_fused:
            return self._pack().run(ids, positions, plan, rows)
        logits: torch.Tensor = self.model(
            **show(self.model, ids[None], placed),
            position_ids=positions[..., None, :],
            use_cache=False,
            logits_to_keep=rows,
            attention_plan=plan,
            **({} if routing is None else {"routing": routing}),
        ).logits[0]
        return logits

    def _pack(self) -> FusedDecoder:
        """Return the fused decoder of the weights as they are since `renew`."""
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = FusedDecoder(
                self.model, self.memory.geometry.layers, max_context=self._max_context
            )
        return decoder


def build_runner(
    model: PreTrainedModel, *, max_concurrency: int, max_context: int, num_pages: int, page_size: int, **fast: Any
) -> Runner:
    """Build the runner for the path that the model takes; `fast` are further arguments of `ModelRunner`."""
    if is_fast(model):
        return ModelRunner(model, num_pages=num_pages, page_size=page_size, max_context=max_context, **fast)
    return GenericRunner(model, max_concurrency=max_concurrency, max_context=max_context)


def _check_graphs(model: PreTrainedModel, attention: str, unfused: str | None, *, needs_cuda: bool) -> None:
    """Raise EngineError if decoding steps cannot be recorded; `unfused` says why the fused decoder does not run, None
    if it does."""
    if attention != "flex":
        raise EngineError(
            f"cuda_graphs=True with attention={attention!r}, which copies a different number of pages in each step; "
            "use attention='flex'"
        )
    if unfused:
        raise EngineError(
            f"cuda_graphs=True needs the fused decoder, which does not run here: {unfused}; use cuda_graphs=False"
        )
    if needs_cuda and model.device.type != "cuda":
        raise EngineError(
            f"cuda_graphs=True needs a model on a GPU, but this one is on {model.device}; use cuda_graphs=False, or "
            "move it to a GPU"
        )


def _lay_out(items: Sequence[Item]) -> list[_Tile]:
    """Return the tiles in the order of the flat batch: by bucket, then by length, so that similar ones are
    neighbours."""
    cut: list[tuple[int, int, int, int]] = []
    for index, item in enumerate(items):
        for at in range(item.start, item.start + item.count, TILE):
            count = min(TILE, item.start + item.count - at)
            cut.append((bucket(count), at, count, index))
    cut.sort()
    tiles: list[_Tile] = []
    place = 0
    for _, start, count, index in cut:
        lease = items[index].request.lease
        assert lease is not None
        tiles.append(_Tile(place, start, count, lease.pages, index))
        place += count
    return tiles
