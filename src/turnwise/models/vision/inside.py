"""Encodes the pictures of a batch inside a model's forward: for a model whose parameters are whole only there.

The forward of ranks that share a model assembles its parameters. All of them must then use the same ones, so a rank
whose batch has no picture encodes a black one, which adds 0."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.core.pictures import PlacedImages
from turnwise.models.vision.eyes import Eyes
from turnwise.models.vision.placing import encode_pictures, place_features, show

INSIDE = "turnwise_images"
"""The argument of a forward that contains the pictures of its `input_ids` and where they stand."""


def look_inside(model: PreTrainedModel, eyes: Eyes) -> None:
    """Let the layers of `model` take `INSIDE`; a second call changes nothing."""
    layers: Any = model.base_model
    if not getattr(layers, INSIDE, False):
        setattr(layers, INSIDE, True)
        layers.register_forward_pre_hook(_Look(eyes), with_kwargs=True)


class _Look:
    def __init__(self, eyes: Eyes) -> None:
        self._eyes = eyes

    def __call__(
        self, layers: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if INSIDE not in kwargs:
            return None
        images: PlacedImages | None = kwargs.pop(INSIDE)
        token_ids = kwargs.pop("input_ids")
        if images is None:
            return args, {**kwargs, "inputs_embeds": self._embed_text(layers, token_ids)}
        placed = place_features(encode_pictures(layers, images, self._eyes), images, token_ids.device)
        return args, {**kwargs, **show(layers, token_ids, placed)}

    def _embed_text(self, layers: Any, token_ids: torch.Tensor) -> torch.Tensor:
        blank = self._eyes.encode_blank(layers)
        nothing = sum((part.sum() for part in (blank.rows, *blank.deep)), torch.zeros((), device=token_ids.device))
        embedded: torch.Tensor = layers.get_input_embeddings()(token_ids)
        return embedded + 0 * nothing.to(embedded.dtype)
