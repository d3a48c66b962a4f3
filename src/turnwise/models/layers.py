"""The layers of a decoder: finding them, and computing them twice instead of keeping what they computed."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def list_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of a model, or of a part of one: its first list of modules; empty where it has none."""
    return list(next((part for part in model.modules() if isinstance(part, torch.nn.ModuleList)), ()))


def recompute_layers(model: torch.nn.Module) -> None:
    """Let every layer keep only its input for the backward pass, which computes it again. Results are the same."""
    for layer in list_layers(model):
        layer.forward = MethodType(forward, layer)


def forward(layer: torch.nn.Module, *inputs: Any, **options: Any) -> Any:
    """Takes the place of a layer's forward; of the same name, so that a model that is sent to another process arrives
    with its own."""
    compute = partial(type(layer).forward, layer)
    if not torch.is_grad_enabled():
        return compute(*inputs, **options)
    return checkpoint(compute, *inputs, use_reentrant=False, **options)
