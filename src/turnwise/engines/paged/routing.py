"""Records the experts that a mixture-of-experts model chooses while it samples, next to the token's keys and values.

A token that a request finds in the cache was routed when it was computed, perhaps for another request; its page records
how. A request reads the experts of its cached tokens after every step, so that a token keeps the experts of the pass
from which the next token was drawn, even if new weights make the engine compute it again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnwise.engines.paged.scheduler import Request


class RecordedRouting:
    """Records what routers choose. Implements `models.routing.Routing`."""

    def __init__(self, experts: torch.Tensor, slots: torch.Tensor) -> None:
        """`experts [slots of the memory, layers, k]` is written at `slots [T]`; further rows of a step are padding."""
        self._experts = experts
        self._slots = slots

    def choose(self, layer: int, chosen: torch.Tensor) -> None:
        """See `Routing`: routers keep their own choice."""
        rows = chosen[: len(self._slots)].to(torch.uint8)
        self._experts[:, layer].index_copy_(0, self._slots, rows)


def note_experts(requests: Sequence[Request], experts: torch.Tensor, page_size: int) -> None:
    """Record, for every running request, the experts of computed tokens that it does not know yet."""
    slots, counts = [], []
    for request in requests:
        assert request.lease is not None
        new = range(request.num_noted, request.num_computed)
        slots += [request.lease.pages[at // page_size] * page_size + at % page_size for at in new]
        counts.append(len(new))
    rows = experts[torch.tensor(slots, dtype=torch.long, device=experts.device)].cpu().split(counts)
    for request, part in zip(requests, rows, strict=True):
        if len(part):
            request.experts.append(part.numpy())
            request.num_noted += len(part)
