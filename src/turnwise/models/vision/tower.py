"""What of a vision-language model is not its text part: the tower, and what fits its rows to the text part."""

from __future__ import annotations

import re

import torch
from transformers import PreTrainedModel


def list_tower(model: PreTrainedModel) -> dict[str, torch.nn.Module]:
    """Return the modules that compute features of pictures, by name; empty for a model of text only."""
    if model.config.get_text_config() is model.config:
        return {}
    text, prefix = model.get_decoder(), model.base_model_prefix
    return {f"{prefix}.{name}": module for name, module in model.base_model.named_children() if module is not text}


def freeze_tower(model: PreTrainedModel) -> PreTrainedModel:
    """Exclude a model's tower from training, so that features of pictures stay the same; returns it."""
    for module in list_tower(model).values():
        module.requires_grad_(False)
    return model


def is_frozen(model: PreTrainedModel) -> bool:
    """Whether features of pictures stay the same in training; also for a model without a tower."""
    return not any(p.requires_grad for module in list_tower(model).values() for p in module.parameters())


def match_tower(model: PreTrainedModel) -> str | None:
    """Return a pattern that matches the whole names of a tower's modules; None for a model of text only."""
    names = [re.escape(name) for name in list_tower(model)]
    return rf"({'|'.join(names)})\..*" if names else None
