"""Pictures for vLLM's own processor: it is given pixels and one marker per picture, and files that describe it.

What it makes of them must be the trainer's tokens, and the trainer's log-probabilities: a canary with pictures shows
both before the first request, and every request's tokens are compared again."""

from __future__ import annotations

import base64
import copy
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, StoreError
from turnwise.core.messages import hash_pixels
from turnwise.core.types import ImagePart, Prompt, to_ids
from turnwise.engines.canary import NUM_CANARY_TOKENS
from turnwise.models.vision.eyes import Eyes, find_eyes, place_eyes
from turnwise.models.vision.layout import FamilyLayout
from turnwise.models.vision.llava import Llava, PixtralLlava
from turnwise.pictures.store import PictureStore

PROCESSORS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "smolvlm": ("SmolVLMProcessor", {"image_seq_len": "num_places"}),
    "idefics3": ("Idefics3Processor", {"image_seq_len": "num_places"}),
    "llava": ("LlavaProcessor", {}),
    "qwen2_vl": ("Qwen2VLProcessor", {}),
    "qwen2_5_vl": ("Qwen2_5_VLProcessor", {}),
    "qwen3_vl": ("Qwen3VLProcessor", {}),
    "internvl": ("InternVLProcessor", {"image_seq_length": "num_places"}),
}
"""By model type: transformers' processor, and its arguments with the fields of the family (`models.vision.family`)."""
CANARY_SIZES = ((48, 40), (33, 57))
"""Width and height of the canary's pictures; the second one has to be resized by every processor."""


def find_layout(model: PreTrainedModel) -> FamilyLayout | None:
    """Return how a model's pictures are written; None for a model that reads text."""
    eyes = find_eyes(model)
    return None if eyes is None else eyes.layout


def plan_eyes(model: PreTrainedModel, max_context: int) -> dict[str, int] | None:
    """Return what a process must know in advance: the token that is never sampled, and the most pictures in a prompt,
    each of which has a place; None for a model that reads text."""
    layout = find_layout(model)
    return None if layout is None else {"placeholder": layout.place_id, "max_pictures": max_context}


def show(prompt: Prompt, eyes: Eyes | None) -> dict[str, Any] | None:
    """Return a prompt as vLLM's processor takes it: the tokens with one marker for each picture, of how many tokens
    they take the place, and the pictures; None without pictures.

    Raises EngineError if a picture is missing, or the prompt was laid out otherwise.
    """
    if not prompt.images:
        return None
    if eyes is None or eyes.layout is None:
        raise EngineError(
            f"the prompt shows {len(prompt.images)} pictures, but the model reads text only; use a vision-language "
            "model"
        )
    ids: list[int] = []
    pictures: list[dict[str, Any]] = []
    at = 0
    for span in prompt.images:
        if span.offset:
            continue  # a later piece of the same picture
        picture = _write_picture(span.digest, eyes)
        laid = eyes.layout.lay_out(ImagePart(digest=span.digest, width=picture["width"], height=picture["height"]))
        start = span.start - laid.images[0].start
        end = start + len(laid.token_ids)
        if prompt.token_ids[start:end].tolist() != laid.token_ids.tolist():
            raise EngineError(
                f"picture {span.digest[:12]} at token {span.start} was laid out by another processor than the model's; "
                "sample the conversation again"
            )
        ids += [*prompt.token_ids[at:start].tolist(), eyes.layout.marker_id]
        pictures.append(picture)
        at = end
    ids += prompt.token_ids[at:].tolist()
    return {"token_ids": ids, "num_tokens": len(prompt.token_ids), "pictures": pictures}


def _write_picture(digest: str, eyes: Eyes) -> dict[str, Any]:
    try:
        pixels = eyes.pictures.read(digest)
    except StoreError as cause:
        raise EngineError(str(cause)) from cause
    height, width, _ = pixels.shape
    content = base64.b64encode(zlib.compress(np.ascontiguousarray(pixels).tobytes(), 1)).decode()
    return {"digest": digest, "width": width, "height": height, "pixels": content}


def write_processor(layout: FamilyLayout, folder: Path) -> None:
    """Write the tokenizer and the image processor of a model into its folder, from which vLLM builds its own."""
    folder.mkdir()
    layout.tokenizer.save_pretrained(folder)
    described = layout.sight.describe()
    images = described["processor"]
    table = {**_describe_family(layout), **described["settings"], "image_processor": images}
    (folder / "processor_config.json").write_text(json.dumps(table), encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(images), encoding="utf-8")


def _describe_family(layout: FamilyLayout) -> dict[str, Any]:
    """Return what transformers' processor is told besides its image processor, for a model with random weights."""
    family = layout.sight.family
    name, arguments = PROCESSORS[layout.sight.config.model_type]
    if isinstance(family, Llava):
        arguments = {"patch_size": "patch_size", "num_additional_image_tokens": "num_extra"}
    told = {argument: getattr(family, field) for argument, field in arguments.items()}
    if isinstance(family, Llava):
        told["vision_feature_select_strategy"] = "default" if family.drops_first else "full"
    return {"processor_class": "PixtralProcessor" if isinstance(family, PixtralLlava) else name, **told}


def paint_canary(model: PreTrainedModel, layout: FamilyLayout) -> tuple[PreTrainedModel, Prompt]:
    """Return a prompt with pictures that shows whether another program computes what the model does, and the model with
    eyes for them alone: they are no pictures of the run."""
    generator = np.random.default_rng(0)
    special = layout.tokenizer.added_tokens_decoder  # a marker among the words would be taken for one of a picture
    words = [token for token in range(model.config.get_text_config().vocab_size) if token not in special]
    store = PictureStore(None)
    ids, spans = generator.choice(words, 4).tolist(), []
    for width, height in CANARY_SIZES:
        # Squares of 8 pixels, so that something is left of them in smaller pictures.
        coarse = generator.integers(0, 256, (-(-height // 8), -(-width // 8), 3), np.uint8)
        pixels = coarse.repeat(8, 0).repeat(8, 1)[:height, :width].tobytes()
        part = ImagePart(digest=hash_pixels(pixels, width, height), width=width, height=height, pixels=pixels)
        store.put(part)
        laid = layout.lay_out(part)
        spans += [span.shift(len(ids)) for span in laid.images]
        ids += [*laid.token_ids.tolist(), *generator.choice(words, NUM_CANARY_TOKENS).tolist()]
    looking = copy.copy(model)  # the same weights
    place_eyes(looking, Eyes(layout.sight, store, layout))
    return looking, Prompt(token_ids=to_ids(ids), images=tuple(spans))
