"""LLaVA: a tower of CLIP or SigLIP, which sees a picture as one square, or of Pixtral, which keeps its shape and ends
each row of places with a token of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from turnwise.models.vision.family import Prepared, Settings
from turnwise.models.vision.features import Features

PLACE = "<image>"
PIXTRAL_PLACE, ROW_END, END = "[IMG]", "[IMG_BREAK]", "[IMG_END]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Llava:
    """Implements `Family` for towers of one size."""

    patch_size: int
    num_extra: int
    """Rows of the tower that are not of a patch: 1 for CLIP's class token."""
    drops_first: bool
    """Whether the first row is left out."""
    tokens: tuple[str, ...] = (PLACE,)
    marker: str = PLACE
    replaced: str = PLACE

    @property
    def options(self) -> Settings:
        """See `Family`."""
        return {}

    def describe(self) -> Settings:
        """See `Family`."""
        return {
            "processor_class": "LlavaProcessor",
            "patch_size": self.patch_size,
            "num_additional_image_tokens": self.num_extra,
            "vision_feature_select_strategy": "default" if self.drops_first else "full",
        }

    def write(self, prepared: Prepared) -> str:
        """See `Family`."""
        height, width = prepared["pixel_values"].shape[-2:]
        num_patches = (height // self.patch_size) * (width // self.patch_size)
        return PLACE * (num_patches + self.num_extra - self.drops_first)

    def find_grid(self, prepared: Prepared) -> None:
        """See `Family`."""

    def encode(self, model: PreTrainedModel, pictures: Sequence[Prepared]) -> list[Features]:
        """See `Family`."""
        owner: Any = model
        pixels = torch.cat([picture["pixel_values"] for picture in pictures]).to(model.device, model.dtype)
        return [Features(rows=rows) for rows in owner.get_image_features(pixels).pooler_output]


@dataclass(frozen=True, slots=True, kw_only=True)
class PixtralLlava:
    """Implements `Family` for Pixtral's tower."""

    patch_size: int
    """Pixels per side of a place."""
    tokens: tuple[str, ...] = (PIXTRAL_PLACE, ROW_END, END)
    marker: str = PIXTRAL_PLACE
    replaced: str = PIXTRAL_PLACE

    @property
    def options(self) -> Settings:
        """See `Family`."""
        return {"patch_size": self.patch_size}

    def describe(self) -> Settings:
        """See `Family`."""
        return {"processor_class": "PixtralProcessor", "patch_size": self.patch_size}

    def write(self, prepared: Prepared) -> str:
        """See `Family`: one row of places after another."""
        height, width = (int(side) // self.patch_size for side in prepared["image_sizes"].flatten())
        return ROW_END.join([PIXTRAL_PLACE * width] * height) + END

    def find_grid(self, prepared: Prepared) -> None:
        """See `Family`."""

    def encode(self, model: PreTrainedModel, pictures: Sequence[Prepared]) -> list[Features]:
        """See `Family`."""
        owner: Any = model
        pixels = torch.cat([picture["pixel_values"] for picture in pictures]).to(model.device, model.dtype)
        sizes = torch.cat([picture["image_sizes"] for picture in pictures])
        return [Features(rows=rows) for rows in owner.get_image_features(pixels, image_sizes=sizes).pooler_output]


def read_llava(config: PreTrainedConfig, processor: Settings) -> Llava | PixtralLlava:
    """Build the family from a model's config and the arguments of its processor."""
    owner: Any = config
    tower = owner.vision_config
    patch_size = int(processor.get("patch_size") or tower.patch_size)
    if _is_pixtral(tower.model_type):
        return PixtralLlava(patch_size=patch_size * int(processor.get("spatial_merge_size", 1)))
    num_extra = int(processor.get("num_additional_image_tokens", "clip" in tower.model_type))
    strategy = processor.get("vision_feature_select_strategy") or owner.vision_feature_select_strategy
    return Llava(patch_size=patch_size, num_extra=num_extra, drops_first=strategy == "default")


def list_llava_tokens(config: Settings) -> Mapping[str, str]:
    """Return the special tokens for a tower, each with the config's field of its id."""
    tower = config.get("vision_config") or {}
    if _is_pixtral(tower.get("model_type")):
        return {PIXTRAL_PLACE: "image_token_id", ROW_END: "", END: ""}
    return {PLACE: "image_token_id"}


def shape_llava(config: PreTrainedConfig) -> Settings:
    """Return the arguments of the image processor for a model with random weights: all of a picture, as one square
    unless the tower keeps its shape."""
    owner: Any = config
    side = owner.vision_config.image_size
    if _is_pixtral(owner.vision_config.model_type):
        return {"size": {"longest_edge": side}, "patch_size": owner.vision_config.patch_size}
    return {"size": {"height": side, "width": side}, "do_center_crop": False}


def find_llava_processor(config: PreTrainedConfig) -> str:
    """Return the model type whose image processor a model with random weights has: that of its tower."""
    owner: Any = config
    kind = str(owner.vision_config.model_type)
    return kind.removesuffix("_vision_model") if kind != "pixtral" else kind


def _is_pixtral(kind: object) -> bool:
    return kind == "pixtral"
