"""Puts the features of pictures in the place of token embeddings."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.models.vision.features import Features


def embed(
    model: PreTrainedModel, token_ids: torch.Tensor, places: torch.Tensor, features: Features
) -> dict[str, torch.Tensor]:
    """Return the arguments of a model's forward for tokens of which some stand for pictures, in place of `input_ids`.

    Args:
        token_ids: `[B, T]`.
        places: `[P]` places of pictures in the flattened `[B * T]`, each at most once.
        features: their rows, `P` of them, in the order of `places` (`Features.take`).

    A placeholder id at any other place is an ordinary token. Differentiable in the embedding and the features.
    """
    embedding: Any = model.get_input_embeddings()
    embedded = embedding(token_ids)
    rows = features.rows.to(embedded.dtype)
    flat = embedded.flatten(0, 1).index_copy(0, places, rows)
    return {"inputs_embeds": flat.view_as(embedded)}
