"""From planned items to logits: lays tokens end to end, builds the attention plan, runs the model.

Runs the model's own modules, or the fused decoder where the family has one. Knows nothing about scheduling or sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.engines.paged.attention import Geometry, PagedAttention, PagedMemory, bucket
from turnwise.engines.paged.fused import FusedDecoder, why_not
from turnwise.engines.paged.scheduler import Item
from turnwise.models.attention import ATTENTION_NAME
from turnwise.models.invariant import MIN_BATCH_ROWS, TILE


@dataclass(frozen=True, slots=True)
class _Tile:
    at: int
    start: int
    count: int
    pages: list[int]
    item: int
    """Which item it belongs to."""


class ModelRunner:
    """One model and its paged memory."""

    def __init__(self, model: PreTrainedModel, *, num_pages: int, page_size: int, max_context: int, fused: bool | None) -> None:
        """`fused` None takes the fused decoder where the family has one; True raises EngineError where it has none."""
        if model.config._attn_implementation != ATTENTION_NAME:
            raise EngineError(
                f"the model of type {model.config.model_type!r} runs with attention {model.config._attn_implementation!r}; build it "
                f"with attn_implementation={ATTENTION_NAME!r} (models.build does)"
            )
        reason = why_not(model)
        if fused and reason:
            raise EngineError(f"the model cannot run fused: {reason}; use its modules (fused=False)")
        self.model = model
        self.vocab_size = int(model.config.vocab_size)
        self.memory = PagedMemory(
            Geometry.of(model.config), num_pages=num_pages + 1, page_size=page_size, dtype=model.dtype, device=model.device
        )
        self.is_fused = fused is not False and reason is None
        self._max_context = max_context
        self._decoder: FusedDecoder | None = None
        self._parameters = list(model.parameters())

    def weights_stamp(self) -> int:
        """Grows whenever a parameter is changed in place by what autograd counts. A fused optimizer's step is not counted, nor are changes
        through `.data`: after these only `adopt` tells the engine."""
        return sum(parameter._version for parameter in self._parameters)

    def renew(self) -> None:
        """The weights changed: packed copies are made again at the next step."""
        self._decoder = None

    @torch.inference_mode()
    def run(self, items: Sequence[Item]) -> torch.Tensor:
        """Logits `[R, V]`: for each item that samples, in order, the row of its last known token and one per drafted token after it.

        Writes the items' keys and values.
        """
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
        # A drafted item is one tile, so its rows follow each other.
        rows = [row - back for row, item in zip(last, items, strict=True) if item.samples for back in range(len(item.draft), -1, -1)]
        num_rows = len(rows)
        rows += [rows[-1] if rows else 0] * (MIN_BATCH_ROWS - num_rows)
        device = self.model.device
        return self._forward(
            torch.tensor(ids, device=device),
            torch.from_numpy(positions).to(device),
            PagedAttention(self.memory, list(tiles), slots),
            torch.tensor(rows, device=device),
        )[:num_rows]

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor, plan: PagedAttention, rows: torch.Tensor) -> torch.Tensor:
        if self.is_fused:
            if self._decoder is None:
                self._decoder = FusedDecoder(self.model, max_context=self._max_context)
            return self._decoder.run(ids, positions, plan, rows)
        logits: torch.Tensor = self.model(
            input_ids=ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=rows, attention_plan=plan
        ).logits[0]
        return logits


def _lay_out(items: Sequence[Item]) -> list[_Tile]:
    """Tiles in the order of the flat batch: by bucket, then by length, so that like stands with like."""
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
