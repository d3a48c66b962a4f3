"""The experts that a mixture-of-experts model takes while it samples, kept where the keys and values of a token are.

A token that a request finds in the cache was routed when it was computed, perhaps for another request; its page says
how. A request reads what it has in the cache after every step, so that a token keeps the experts of the pass that the
token after it was drawn from, also where new weights make the engine compute it again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnwise.engines.paged.scheduler import Request


class RecordedRouting:
    """Writes what routers choose. Implements `models.routing.Routing`."""

    def __init__(self, experts: torch.Tensor, slots: torch.Tensor) -> None:
        """`experts [slots of the memory, layers, k]` is written at `slots [T]`; rows of a step after these are
        padding."""
        self._experts = experts
        self._slots = slots

    def choose(self, layer: int, chosen: torch.Tensor) -> None:
        """See `Routing`: routers keep their choice."""
        rows = chosen[: len(self._slots)].to(torch.uint8)
        self._experts[:, layer].index_copy_(0, self._slots, rows)


def note_experts(requests: Sequence[Request], experts: torch.Tensor, page_size: int) -> None:
    """Give every running request the experts of its computed tokens that it does not know yet."""
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
