"""Lays the features of pictures over the tokens that stand for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.pictures import PlacedImages
from turnwise.models.vision.eyes import Eyes
from turnwise.models.vision.features import Features, join_features
from turnwise.models.vision.inputs import embed


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Features of P places."""

    places: torch.Tensor
    """`[P]` indices in the flattened batch, each at most once."""
    features: Features
    """P rows, in the order of `places`."""


def encode_pictures(model: PreTrainedModel, images: PlacedImages, eyes: Eyes | None) -> list[Features]:
    """Encode the pictures of a batch, each of them once, with the tower of `model`; differentiable. Raises EngineError
    without `eyes`."""
    if eyes is None:
        raise EngineError(
            f"the batch shows {len(images.digests)} pictures, but {type(model).__name__} has no store of pictures or "
            "reads text only; use a vision-language model"
        )
    return eyes.encode(model, images.digests)


def place_features(encoded: list[Features], images: PlacedImages, device: torch.device) -> Placed:
    """Return one row for every place, from the features of every picture."""
    starts = np.cumsum([0, *(len(features.rows) for features in encoded)])
    index = torch.from_numpy(starts[images.image] + images.row).to(device)
    return Placed(torch.from_numpy(images.places).to(device), join_features(encoded).take(index))


def show(model: PreTrainedModel, token_ids: torch.Tensor, placed: Placed | None) -> dict[str, torch.Tensor]:
    """Return the arguments of a forward for `token_ids` `[B, T]`: the ids, or embeddings with the features of pictures
    in place of theirs."""
    return {"input_ids": token_ids} if placed is None else embed(model, token_ids, placed.places, placed.features)
