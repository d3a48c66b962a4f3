"""SmolVLM and Idefics3: pictures as one square, or cut into tiles with a small overview after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from turnwise.models.vision.family import Prepared, Settings
from turnwise.models.vision.features import Features

PLACE, AROUND, OVERVIEW = "<image>", "<fake_token_around_image>", "<global-img>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmolVlm:
    """Implements `Family`."""

    processor: str
    """Its processor in transformers."""
    num_places: int
    """Places per tile."""
    tokens: tuple[str, ...] = (PLACE, AROUND, OVERVIEW)
    marker: str = PLACE
    replaced: str = PLACE

    @property
    def options(self) -> Settings:
        """See `Family`."""
        return {"return_row_col_info": True}

    def describe(self) -> Settings:
        """See `Family`."""
        return {"processor_class": self.processor, "image_seq_len": self.num_places}

    def write(self, prepared: Prepared) -> str:
        """See `Family`: tiles row by row, each after its number, and the overview at the end."""
        places = PLACE * self.num_places
        overview = f"{AROUND}{OVERVIEW}{places}{AROUND}"
        num_rows, num_columns = int(prepared["rows"]), int(prepared["cols"])
        if not num_rows and not num_columns:
            return overview
        rows = (
            "".join(f"{AROUND}<row_{row + 1}_col_{column + 1}>{places}" for column in range(num_columns)) + "\n"
            for row in range(num_rows)
        )
        return "".join(rows) + "\n" + overview

    def find_grid(self, prepared: Prepared) -> None:
        """See `Family`."""

    def encode(self, model: PreTrainedModel, pictures: Sequence[Prepared]) -> list[Features]:
        """See `Family`."""
        pixels = torch.cat([picture["pixel_values"] for picture in pictures]).to(model.device, model.dtype)
        masks = [picture["pixel_attention_mask"] for picture in pictures if "pixel_attention_mask" in picture]
        mask = torch.cat(masks).to(model.device) if masks else None
        # The model leaves out tiles of zeros as padding. Here every tile is one of a picture, so one that is all zero
        # gets a number that is too small to change any sum.
        blank = (pixels == 0).flatten(2).all(-1)
        pixels[blank, 0, 0, 0] = torch.finfo(pixels.dtype).tiny
        owner: Any = model
        return [Features(rows=rows) for rows in owner.get_image_features(pixels, mask).pooler_output]


def read_smolvlm(config: PreTrainedConfig, processor: Settings) -> SmolVlm:
    """Build the family from a model's config and the arguments of its processor."""
    vision: Any = config.vision_config
    own = (vision.image_size // vision.patch_size) ** 2 // config.scale_factor**2
    name = "SmolVLMProcessor" if config.model_type == "smolvlm" else "Idefics3Processor"
    return SmolVlm(processor=name, num_places=int(processor.get("image_seq_len", own)))


def list_smolvlm_tokens(config: Settings) -> Mapping[str, str]:
    """Return the special tokens for pictures that are not cut into tiles."""
    return {PLACE: "image_token_id", AROUND: "", OVERVIEW: ""}


def shape_smolvlm(config: PreTrainedConfig) -> Settings:
    """Return the arguments of the image processor for a model with random weights: one square, no tiles."""
    size = {"longest_edge": config.vision_config.image_size}
    return {"size": size, "max_image_size": size, "do_image_splitting": False}
