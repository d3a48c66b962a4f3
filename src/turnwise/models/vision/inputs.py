"""Puts the features of pictures in the place of token embeddings."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.models.vision.features import Features
from turnwise.models.vision.table import looks_ahead

EMBEDDED = "inputs_embeds"
"""The argument of a forward that contains embeddings in place of ids."""
TYPES = "token_type_ids"
"""The argument that says which tokens are places, to models whose places see each other in both directions; such a
model reads it from the start of a sequence, also where its cache contains the first tokens."""
DEEP = "turnwise_deep"
"""The argument of a forward that contains which tokens are places, and their deep features."""


def embed(model: PreTrainedModel, token_ids: torch.Tensor, places: torch.Tensor, features: Features) -> dict[str, Any]:
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
    inputs: dict[str, Any] = {EMBEDDED: flat.view_as(embedded)}
    shown = torch.zeros(flat.shape[0], dtype=torch.bool, device=flat.device).index_fill(0, places, True)
    if looks_ahead(model.config.model_type):
        inputs[TYPES] = shown.view(token_ids.shape).long()
    if features.deep:
        order = places.argsort()  # the model adds them in the order of their places
        inputs[DEEP] = shown.view(token_ids.shape), [layer[order] for layer in features.deep]
    return inputs


def take_deep_features(model: PreTrainedModel) -> None:
    """Make a model's text part take the deep features that `embed` returns; idempotent. Models without any are left
    unchanged: none are returned for them."""
    owner: Any = model.base_model
    text = getattr(owner, "language_model", None)
    if text is not None and not getattr(text, DEEP, False):
        setattr(text, DEEP, True)
        text.register_forward_pre_hook(_give_deep, with_kwargs=True)


def _give_deep(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Hook before the forward of a text part. The model around it gives it features of its own arguments only, which
    it would find by the placeholder's id."""
    if DEEP not in kwargs:
        return None
    others = {name: value for name, value in kwargs.items() if name != DEEP}
    shown, layers = kwargs[DEEP]
    return args, others | {"visual_pos_masks": shown, "deepstack_visual_embeds": layers}
