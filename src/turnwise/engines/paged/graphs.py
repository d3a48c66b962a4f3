"""Decoding steps as CUDA graphs: all launches of a step are recorded once and started with one call.

A graph repeats the same operations on the same addresses. So the inputs of a step are copied into one tensor of fixed
size; everything that depends on them is computed by recorded operations, and the output stays at its address. There is
one graph for each of a few batch sizes, recorded when first needed. A smaller step gets padding rows: they list no
pages, so they attend to nothing, and what they write goes to a separate page. Tables are as wide as the longest request
there can be, and the kernels read only as much of a line as its request uses, so graphs do not depend on lengths.

Graphs hold the addresses of the weights they were recorded with: new weights need a new `DecodeGraphs`. How
recording works is passed in, and `record_cuda_graphs` is the only code here that needs a GPU; **it never ran on one
yet**."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from turnwise.engines.paged.attention import PagedMemory, PagedPlan
from turnwise.engines.paged.flex import FlexAttention, FlexGroup, TileBatch
from turnwise.models.invariant import MIN_BATCH_ROWS

WARM_UPS = 2
"""Times that a step runs before it is recorded: kernels are compiled and libraries allocate work space, which cannot
happen in a graph."""

Step = Callable[[], torch.Tensor]
"""Computes a step's logits from inputs at the same addresses as before."""
Record = Callable[[Step], Step]
"""Turns a step into one that repeats its operations on the same tensors and leaves its output at the same address."""


class Forward(Protocol):
    """The model: maps `token_ids [T]` and `positions [T]` to logits `[len(rows), V]` of the flat batch's `rows`."""

    def __call__(
        self, token_ids: torch.Tensor, positions: torch.Tensor, plan: PagedPlan, rows: torch.Tensor, /
    ) -> torch.Tensor:
        """Compute the logits; the plan writes keys and values."""
        ...


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """The next token of one request."""

    token: int
    position: int
    pages: list[int]
    """Pages of the request, in order."""


class DecodeGraphs:
    """Recorded decoding steps of one set of weights."""

    def __init__(
        self, memory: PagedMemory, forward: Forward, *, max_pages: int, spare_page: int, record: Record
    ) -> None:
        """`max_pages` is the most pages a request can have; `spare_page` is a page that no request ever holds."""
        self._memory = memory
        self._forward = forward
        self._max_pages = max_pages
        self._spare_page = spare_page
        self._record = record
        self._recorded: dict[int, tuple[torch.Tensor, Step]] = {}

    @property
    def batch_sizes(self) -> list[int]:
        """Batch sizes of the graphs recorded so far."""
        return sorted(self._recorded)

    def run(self, rows: Sequence[DecodeRow]) -> torch.Tensor:
        """Compute the logits `[len(rows), V]`, which the next call overwrites, and write the tokens' keys and
        values."""
        size = max(MIN_BATCH_ROWS, 1 << (len(rows) - 1).bit_length())
        table = torch.from_numpy(self._tabulate(rows, size))
        if size not in self._recorded:
            inputs = table.to(self._memory.layers[0].device, copy=True)
            # Recording runs the step several times, which writes the same keys and values to the same slots.
            self._recorded[size] = inputs, self._record(lambda: self._compute(inputs))
        inputs, step = self._recorded[size]
        inputs.copy_(table)
        return step()[: len(rows)]

    def _tabulate(self, rows: Sequence[DecodeRow], size: int) -> np.ndarray:
        """Return the table `[size, 4 + max_pages]` int32: token, position, slot, number of pages, pages."""
        page_size = self._memory.page_size
        table = np.zeros((size, 4 + self._max_pages), dtype=np.int32)
        table[:, 2] = self._spare_page * page_size
        for line, row in zip(table, rows, strict=False):
            seen = row.position // page_size + 1
            line[:4] = row.token, row.position, row.pages[seen - 1] * page_size + row.position % page_size, seen
            line[4 : 4 + seen] = row.pages[:seen]
        return table

    def _compute(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the recorded step: nothing here may depend on anything but `inputs` and tensors that stay."""
        token_ids, positions, slots, num_pages = inputs[:, :4].long().unbind(1)
        batch = TileBatch.of(inputs[:, 4:].contiguous(), num_pages.int(), positions.int()[:, None], self._memory)
        plan = FlexAttention(self._memory, slots, [FlexGroup(batch)])
        return self._forward(token_ids, positions, plan, torch.arange(len(inputs), device=inputs.device))


def record_cuda_graphs() -> Record:
    """Return a recorder for a GPU. Graphs of one recorder share memory, so only the latest output is valid."""
    pool = torch.cuda.graph_pool_handle()

    def record(step: Step) -> Step:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = step()

        def replay() -> torch.Tensor:
            graph.replay()
            return logits

        return replay

    return record
