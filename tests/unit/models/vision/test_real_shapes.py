"""Prompts of folders that have the sizes and the processor of published models, without their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from smolvlm_folder import build_config, write_processor
from transformers.models.smolvlm import processing_smolvlm

from turnwise.core.messages import ImagePart
from turnwise.models.vision.layout import FamilyLayout
from turnwise.models.vision.sight import load_sight


@pytest.mark.parametrize(
    ("tiles", "size", "rows", "columns"),
    [
        (False, (32, 32), 0, 0),  # one square of 512 pixels: 64 places
        (True, (32, 32), 4, 4),  # scaled to 2048 x 2048: 16 tiles and the overview
        (True, (640, 320), 2, 4),
        (True, (300, 1200), 4, 1),
    ],
)
def test_smolvlm_256m_writes_the_places_of_the_published_processor(
    tiles: bool, size: tuple[int, int], rows: int, columns: int, tmp_path: Path
) -> None:
    tokenizer = write_processor(tmp_path, ["a page"], tiles=tiles)
    build_config(tokenizer).save_pretrained(tmp_path)
    layout = FamilyLayout(load_sight(tmp_path, "m"), tokenizer, where="m")
    prompt = layout.lay_out(ImagePart(digest="a", width=size[0], height=size[1]))
    text = processing_smolvlm.get_image_prompt_string(
        rows, columns, 64, "<fake_token_around_image>", "<image>", "<global-img>"
    )
    assert prompt.token_ids.tolist() == tokenizer.encode(text, add_special_tokens=False)
    assert [span.length for span in prompt.images] == [64] * (rows * columns + 1)
    # What the image processor makes of it agrees: one tile per span.
    made = layout.sight.processor(Image.fromarray(np.zeros((size[1], size[0], 3), np.uint8)), return_tensors="np")
    assert made["pixel_values"].shape[1:] == (rows * columns + 1, 3, 512, 512)
