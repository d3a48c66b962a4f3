"""Gemma 3: a picture is one square, whose places see each other in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from turnwise.models.vision.family import Prepared, Settings
from turnwise.models.vision.features import Features

PLACE, BEGIN, END = "<image_soft_token>", "<start_of_image>", "<end_of_image>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma3:
    """Implements `Family`.

    Deviation: the processor encodes the blank lines around a picture together with line breaks of the text beside them,
    as one token; here they are tokens of their own.
    """

    num_places: int
    tokens: tuple[str, ...] = (PLACE, BEGIN, END)
    marker: str = BEGIN
    replaced: str = BEGIN

    @property
    def options(self) -> Settings:
        """See `Family`."""
        return {"do_pan_and_scan": False}

    def describe(self) -> Settings:
        """See `Family`."""
        return {"processor_class": "Gemma3Processor", "image_seq_length": self.num_places}

    def write(self, prepared: Prepared) -> str:
        """See `Family`."""
        return f"\n\n{BEGIN}{PLACE * self.num_places}{END}\n\n"

    def find_grid(self, prepared: Prepared) -> None:
        """See `Family`."""

    def encode(self, model: PreTrainedModel, pictures: Sequence[Prepared]) -> list[Features]:
        """See `Family`."""
        owner: Any = model
        pixels = torch.cat([picture["pixel_values"] for picture in pictures]).to(model.device, model.dtype)
        return [Features(rows=rows) for rows in owner.get_image_features(pixels).pooler_output]


def read_gemma3(config: PreTrainedConfig, processor: Settings) -> Gemma3:
    """Build the family from a model's config and the arguments of its processor."""
    owner: Any = config
    return Gemma3(num_places=int(processor.get("image_seq_length") or owner.mm_tokens_per_image))


def list_gemma3_tokens(config: Settings) -> Mapping[str, str]:
    """Return the special tokens, each with the config's field of its id."""
    return {PLACE: "image_token_index", BEGIN: "boi_token_index", END: "eoi_token_index"}


def shape_gemma3(config: PreTrainedConfig) -> Settings:
    """Return the arguments of the image processor for a model with random weights."""
    owner: Any = config
    return {"size": {"height": owner.vision_config.image_size, "width": owner.vision_config.image_size}}
