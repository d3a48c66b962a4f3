"""Makes a model's placeholder for pictures a token that is never sampled."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

NEVER = -1e4
"""A logit whose probability is exactly 0 beside any other, and finite, so that entropies are."""


def silence_placeholder(model: PreTrainedModel, token: int) -> None:
    """Give `token` probability 0 in every forward pass of `model` and its later copies, so that sampler and
    trainer agree on it. A second call changes nothing."""
    head: Any = model.get_output_embeddings()
    if not getattr(head, "_turnwise_silenced", False):
        head.register_forward_hook(partial(_silence, token))
        head._turnwise_silenced = True


def _silence(token: int, _: Any, __: Any, logits: torch.Tensor) -> torch.Tensor:
    index = torch.tensor([token], device=logits.device)
    return logits.index_fill(-1, index, NEVER)
