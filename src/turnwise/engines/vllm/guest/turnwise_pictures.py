"""Pictures in prompts: vLLM's processor expands one marker per picture, and must come to the trainer's tokens."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

from turnwise_messages import Message

NEVER = -1e4
"""The logit of the placeholder, as the trainer has it (`turnwise.models.vision.placeholder`)."""


def use_pillow() -> None:
    """Let processors prepare pictures with Pillow, as the trainer's do: torchvision resizes differently. Call this
    before vLLM loads a processor."""
    from transformers import AutoImageProcessor

    load = AutoImageProcessor.from_pretrained

    def load_plain(*args: Any, **options: Any) -> Any:
        return load(*args, **{**options, "backend": "pil"})

    AutoImageProcessor.from_pretrained = load_plain


def make_prompt(engine: Any, token_ids: Sequence[int], shown: Message | None, **options: Any) -> Any:
    """Return a prompt for `add_request`. `token_ids` are the trainer's; with pictures, `shown` has their pixels and
    the same tokens with one marker per picture.

    Raises ValueError if vLLM expands the markers to other tokens.
    """
    from vllm import TokensPrompt

    if shown is None:
        return TokensPrompt(prompt_token_ids=list(token_ids), **options)
    pictures = shown["pictures"]
    [prompt] = engine.renderer.render_cmpl(
        [
            TokensPrompt(
                prompt_token_ids=[*shown["token_ids"], *token_ids[shown["num_tokens"] :]],
                multi_modal_data={"image": [read_picture(picture) for picture in pictures]},
                multi_modal_uuids={"image": [picture["digest"] for picture in pictures]},
                **options,
            )
        ]
    )
    expanded = prompt["prompt_token_ids"]
    if list(expanded) != list(token_ids):
        at = next((at for at, pair in enumerate(zip(expanded, token_ids, strict=False)) if pair[0] != pair[1]), None)
        where = "" if at is None else f", the first other one at {at}"
        counts = f"{len(expanded)} tokens of a prompt with pictures, the trainer's {len(token_ids)}"
        raise ValueError(f"its processor makes {counts}{where}")
    return prompt


def read_picture(picture: Message) -> Any:
    """Return a picture of a message as a Pillow image."""
    from PIL import Image

    size = (picture["width"], picture["height"])
    return Image.frombytes("RGB", size, zlib.decompress(base64.b64decode(picture["pixels"])))
