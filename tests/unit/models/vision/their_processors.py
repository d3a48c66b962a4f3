"""transformers' own processors of text and pictures, without the video part, which needs torchvision."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from transformers import PreTrainedTokenizerBase

from turnwise.models.vision.eyes import Eyes

CLASSES = {
    "smolvlm": ("smolvlm", "SmolVLMProcessor"),
    "idefics3": ("idefics3", "Idefics3Processor"),
    "llava_clip": ("llava", "LlavaProcessor"),
    "llava_siglip": ("llava", "LlavaProcessor"),
    "llava_pixtral": ("pixtral", "PixtralProcessor"),
    "qwen2_vl": ("qwen2_vl", "Qwen2VLProcessor"),
    "qwen2_5_vl": ("qwen2_5_vl", "Qwen2_5_VLProcessor"),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLProcessor"),
    "internvl": ("internvl", "InternVLProcessor"),
    "gemma3": ("gemma3", "Gemma3Processor"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "smolvlm": {"image_seq_len": 4},
    "idefics3": {"image_seq_len": 16},
    "llava_clip": {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1},
    "llava_siglip": {"patch_size": 8, "vision_feature_select_strategy": "full"},
    "llava_pixtral": {"patch_size": 8},
    "internvl": {"image_seq_length": 4},
    "gemma3": {"image_seq_length": 4},
}
"""Arguments with which the models of `tiny_seeing.CONFIGS` agree."""
NAMES = {"start_image": "<img>", "end_image": "</img>", "context_image": "<IMG_CONTEXT>", "video": "<video>"}
"""Tokens that InternVL's tokenizers know by attribute."""
GEMMA_NAMES = {"boi": "<start_of_image>", "eoi": "<end_of_image>", "image": "<image_soft_token>"}
"""Those of Gemma 3's."""


def build_processor(kind: str, eyes: Eyes, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Build the processor of a model in `CONFIGS` around the image processor of its eyes."""
    if kind == "llava_pixtral":  # its module takes a function from torchvision's half that the other half has too
        half = importlib.import_module("transformers.models.pixtral.image_processing_pil_pixtral")
        sys.modules.setdefault("transformers.models.pixtral.image_processing_pixtral", half)
    folder, name = CLASSES[kind]
    module = importlib.import_module(f"transformers.models.{folder}.processing_{folder}")
    if kind == "smolvlm":
        setattr(module, "num2words", str)  # noqa: B010 - read for videos only, and unknown to its types
    if kind in ("internvl", "gemma3"):
        for field, token in (NAMES if kind == "internvl" else GEMMA_NAMES).items():
            setattr(tokenizer, f"{field}_token", token)
            setattr(tokenizer, f"{field}_token_id", tokenizer.convert_tokens_to_ids(token))
    theirs = getattr(module, name)
    kept = type(name, (theirs,), {"check_argument_for_proper_class": lambda *_: None})
    with_video = "video_processor" in theirs.__init__.__code__.co_varnames
    built = kept(
        eyes.sight.processor, tokenizer, **({"video_processor": None} if with_video else {}), **SETTINGS.get(kind, {})
    )
    return built
