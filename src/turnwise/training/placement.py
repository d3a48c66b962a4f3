"""Where a trainer's models live: whole in one process, or in rows on several ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from transformers import PreTrainedModel

from turnwise.batching.ranks import ALONE, Ranks
from turnwise.models.checksums import compute_checksums
from turnwise.models.lora import copy_model

Model = TypeVar("Model", bound=torch.nn.Module)
Backbone = Callable[..., Any]
"""Maps tokens to an output with `last_hidden_state`."""


class Placement(Protocol):
    """Places a trainer's whole models."""

    ranks: Ranks
    """This process and those with which it trains."""

    def copy(self, policy: PreTrainedModel) -> PreTrainedModel:
        """Return a whole model with the policy's present weights, to be changed and placed."""
        ...

    def place(self, model: Model) -> Model:
        """Move the whole model to where it trains or scores; the argument must not be used afterwards."""
        ...

    def find_dtype(self, policy: PreTrainedModel) -> torch.dtype:
        """Return the dtype of a placed policy's forward and backward passes."""
        ...

    def find_backbone(self, policy: PreTrainedModel) -> Backbone:
        """Return the layers of a placed policy below its output layer."""
        ...

    def compute_sums(self, policy: PreTrainedModel) -> dict[str, int]:
        """Return `models.checksums.compute_checksums` of the policy as engines sample with it."""
        ...


class Whole:
    """Implements `Placement` for one process."""

    ranks = ALONE

    def copy(self, policy: PreTrainedModel) -> PreTrainedModel:
        """See `Placement.copy`; frozen parameters are shared."""
        return copy_model(policy)

    def place(self, model: Model) -> Model:
        """See `Placement.place`."""
        return model

    def find_dtype(self, policy: PreTrainedModel) -> torch.dtype:
        """See `Placement.find_dtype`."""
        dtype: torch.dtype = policy.dtype
        return dtype

    def find_backbone(self, policy: PreTrainedModel) -> Backbone:
        """See `Placement.find_backbone`."""
        backbone: Backbone = policy.base_model
        return backbone

    def compute_sums(self, policy: PreTrainedModel) -> dict[str, int]:
        """See `Placement.compute_sums`."""
        return compute_checksums(policy)


WHOLE: Placement = Whole()
