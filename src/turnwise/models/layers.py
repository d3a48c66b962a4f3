"""Finds the layers of a decoder, and recomputes them in the backward pass to save memory."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from turnwise.models.vision.tower import list_tower


def list_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the layers of a model, or of a part of one: its first list of modules, of a vision-language model that of
    its text part; empty if it has none."""
    towers = list_tower(model).values() if isinstance(model, PreTrainedModel) else ()
    apart = {id(part) for tower in towers for part in tower.modules()}
    lists = (part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and id(part) not in apart)
    return list(next(lists, ()))


def recompute_layers(model: torch.nn.Module) -> None:
    """Let every layer keep only its input for the backward pass, which computes it again. Results are the same."""
    for layer in list_layers(model):
        layer.forward = MethodType(forward, layer)


def forward(layer: torch.nn.Module, *inputs: Any, **options: Any) -> Any:
    """Replaces a layer's forward; it has the same name, so that a model sent to another process arrives with its own
    forward."""
    compute = partial(type(layer).forward, layer)
    if not torch.is_grad_enabled():
        return compute(*inputs, **options)
    return checkpoint(compute, *inputs, use_reentrant=False, **options)
