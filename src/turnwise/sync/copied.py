"""Engines that sample from a copy of the weights, so that the trainer may step while they sample."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TypeVar

import torch

from turnwise.core.batch import Receipt
from turnwise.core.errors import EngineError
from turnwise.core.protocols import Interrupt, WeightTarget
from turnwise.models.lora import copy_model
from turnwise.sync.publication import EngineGroup

Model = TypeVar("Model", bound=torch.nn.Module)
Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""Source and destination of every tensor that the models do not share."""


def copy_for_serving(model: Model) -> Model:
    """Copy a model without gradients for engines to sample from. Only frozen parameters are shared."""
    served = copy_model(model)
    served.requires_grad_(False)
    return served.eval()


class CopiedParameters:
    """Implements `core.protocols.WeightSync`. Publish between two steps of the trainer."""

    def __init__(
        self,
        trained: torch.nn.Module,
        served: torch.nn.Module,
        engines: Mapping[str, WeightTarget],
        *,
        interrupt: Interrupt = "continue",
        deadline_s: float = 600.0,
    ) -> None:
        """`engines`, by their names in error messages, sample from `served`, a copy of `trained` made by
        `copy_for_serving`.

        `interrupt` says what happens to unfinished replies; `deadline_s` bounds each wait for the engines' answers.
        """
        self._trained, self._served = trained, served
        self._engines = EngineGroup(engines, deadline_s=deadline_s)
        self._interrupt = interrupt

    async def publish(self, version: int) -> Receipt:
        """See `WeightSync.publish`. Raises EngineError naming a tensor that only one of the models has or whose shape
        differs; the engines are then unchanged. After an error of a paused engine all engines stay paused, because
        their weights are unknown."""
        began = time.monotonic()
        pairs = _pair_tensors(self._trained, self._served, version)
        num_restarted = await self._engines.pause(self._interrupt, version)
        await asyncio.to_thread(_copy_tensors, pairs)
        sums = await self._engines.adopt(version)
        await self._engines.resume(version)
        return Receipt(version=version, sums=sums, seconds=time.monotonic() - began, num_restarted=num_restarted)


def _pair_tensors(trained: torch.nn.Module, served: torch.nn.Module, version: int) -> Pairs:
    sources = dict([*trained.named_parameters(), *trained.named_buffers()])
    destinations = dict([*served.named_parameters(), *served.named_buffers()])
    for name in [*sources, *destinations]:
        if name not in destinations:
            raise EngineError(f"the engines' copy has no tensor {name}; version {version} cannot be published")
        if name not in sources:
            raise EngineError(f"the trainer has no tensor {name}; version {version} cannot be published")
        if sources[name].shape != destinations[name].shape:
            raise EngineError(
                f"{name} has shape {tuple(sources[name].shape)} in the trainer but {tuple(destinations[name].shape)} "
                f"in the engines' copy; version {version} cannot be published"
            )
    return [(sources[name], destinations[name]) for name in sources if sources[name] is not destinations[name]]


@torch.no_grad()
def _copy_tensors(pairs: Pairs) -> None:
    for source, destination in pairs:
        destination.copy_(source)
