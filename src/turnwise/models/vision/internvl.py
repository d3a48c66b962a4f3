"""InternVL: a picture cut into square tiles, with an overview after them if there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from turnwise.models.vision.family import Prepared, Settings
from turnwise.models.vision.features import Features

PLACE, BEGIN, END = "<IMG_CONTEXT>", "<img>", "</img>"


@dataclass(frozen=True, slots=True, kw_only=True)
class InternVl:
    """Implements `Family`."""

    num_places: int
    """Places per tile."""
    tokens: tuple[str, ...] = (PLACE, BEGIN, END)
    marker: str = PLACE
    replaced: str = PLACE

    @property
    def options(self) -> Settings:
        """See `Family`."""
        return {"crop_to_patches": True}

    def describe(self) -> Settings:
        """See `Family`."""
        return {"processor_class": "InternVLProcessor", "image_seq_length": self.num_places}

    def write(self, prepared: Prepared) -> str:
        """See `Family`."""
        return BEGIN + PLACE * (self.num_places * int(prepared["num_patches"])) + END

    def find_grid(self, prepared: Prepared) -> None:
        """See `Family`."""

    def encode(self, model: PreTrainedModel, pictures: Sequence[Prepared]) -> list[Features]:
        """See `Family`."""
        owner: Any = model
        pixels = torch.cat([picture["pixel_values"] for picture in pictures]).to(model.device, model.dtype)
        tiles = owner.get_image_features(pixels).pooler_output
        return [Features(rows=each.flatten(0, 1)) for each in tiles.chunk(len(pictures))]


def read_internvl(config: PreTrainedConfig, processor: Settings) -> InternVl:
    """Build the family from a model's config and the arguments of its processor."""
    owner: Any = config
    return InternVl(num_places=int(processor.get("image_seq_length") or owner.image_seq_length))


def list_internvl_tokens(config: Settings) -> Mapping[str, str]:
    """Return the special tokens, each with the config's field of its id."""
    return {PLACE: "image_token_id", BEGIN: "", END: ""}


def shape_internvl(config: PreTrainedConfig) -> Settings:
    """Return the arguments of the image processor for a model with random weights."""
    owner: Any = config
    side = owner.vision_config.image_size
    height, width = side if isinstance(side, list | tuple) else (side, side)
    return {"size": {"height": height, "width": width}}
