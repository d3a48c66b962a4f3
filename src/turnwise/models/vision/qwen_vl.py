"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: pictures in their own shape, positions with three axes, and, in Qwen3-VL, features
that are added after the first layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from turnwise.models.vision.family import Prepared, Settings
from turnwise.models.vision.features import Features

PLACE, BEGIN, END = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"
PROCESSORS = {"qwen2_vl": "Qwen2VLProcessor", "qwen2_5_vl": "Qwen2_5_VLProcessor", "qwen3_vl": "Qwen3VLProcessor"}
LEAST, MOST = 4, 1280
"""Places of the smallest and the largest picture, for random weights: transformers' defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenVl:
    """Implements `Family`."""

    processor: str
    """Its processor in transformers."""
    merged: int
    """Patches per side that become one place."""
    tokens: tuple[str, ...] = (PLACE, BEGIN, END)
    marker: str = BEGIN + PLACE + END
    replaced: str = PLACE

    @property
    def options(self) -> Settings:
        """See `Family`."""
        return {}

    def describe(self) -> Settings:
        """See `Family`."""
        return {"processor_class": self.processor}

    def write(self, prepared: Prepared) -> str:
        """See `Family`: places only, the tokens around them are written by the chat template."""
        time, rows, columns = self.find_grid(prepared)
        return PLACE * (time * rows * columns)

    def find_grid(self, prepared: Prepared) -> tuple[int, int, int]:
        """See `Family`."""
        time, rows, columns = map(int, prepared["image_grid_thw"].flatten())
        return time, rows // self.merged, columns // self.merged

    def encode(self, model: PreTrainedModel, pictures: Sequence[Prepared]) -> list[Features]:
        """See `Family`."""
        owner: Any = model
        pixels = torch.cat([picture["pixel_values"] for picture in pictures]).to(model.device, model.dtype)
        grids = torch.cat([picture["image_grid_thw"] for picture in pictures]).to(model.device)
        output = owner.get_image_features(pixels, grids)
        layers = getattr(output, "deepstack_features", None) or ()
        deep = zip(*layers, strict=True) if layers else [()] * len(pictures)
        return [Features(rows=rows, deep=tuple(more)) for rows, more in zip(output.pooler_output, deep, strict=True)]


def read_qwen_vl(config: PreTrainedConfig, processor: Settings) -> QwenVl:
    """Build the family from a model's config."""
    owner: Any = config
    return QwenVl(processor=PROCESSORS[owner.model_type], merged=int(owner.vision_config.spatial_merge_size))


def list_qwen_tokens(config: Settings) -> Mapping[str, str]:
    """Return the special tokens, each with the config's field of its id."""
    return {
        PLACE: "image_token_id",
        BEGIN: "vision_start_token_id",
        END: "vision_end_token_id",
        "<|video_pad|>": "video_token_id",
    }


def shape_qwen_vl(config: PreTrainedConfig) -> Settings:
    """Return the arguments of the image processor for a model with random weights."""
    owner: Any = config
    tower = owner.vision_config
    area = (tower.patch_size * tower.spatial_merge_size) ** 2
    return {
        "patch_size": tower.patch_size,
        "temporal_patch_size": tower.temporal_patch_size,
        "merge_size": tower.spatial_merge_size,
        "size": {"shortest_edge": LEAST * area, "longest_edge": MOST * area},
    }
