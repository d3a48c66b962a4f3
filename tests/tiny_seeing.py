"""Vision-language models of a few thousand parameters, a tokenizer for them, and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from every_model import draw_weights
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.messages import ImagePart, hash_pixels
from turnwise.models.build import build_model
from turnwise.models.paths import ModelPath, set_path
from turnwise.models.vision.building import complete_config
from turnwise.models.vision.eyes import Eyes, attach_eyes, find_eyes
from turnwise.models.vision.layout import FamilyLayout
from turnwise.models.vision.sight import build_sight
from turnwise.models.vision.table import list_picture_tokens
from turnwise.models.vocabulary import count_ids
from turnwise.pictures.store import PictureStore
from turnwise.rendering.tokenizer import train_tokenizer

TEXT: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TOWER: Mapping[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
AXES: Mapping[str, Any] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "smolvlm": {"text_config": TEXT, "vision_config": TOWER, "scale_factor": 2},
    "idefics3": {"text_config": TEXT, "vision_config": TOWER, "scale_factor": 1},
    "llava_clip": {"text_config": TEXT, "vision_config": {"model_type": "clip_vision_model", **TOWER}},
    "llava_siglip": {
        "text_config": TEXT,
        "vision_config": {"model_type": "siglip_vision_model", **TOWER},
        "vision_feature_select_strategy": "full",
    },
    "llava_pixtral": {
        "text_config": TEXT,
        "vision_config": {"model_type": "pixtral", **TOWER},
        "vision_feature_select_strategy": "full",
        "vision_feature_layer": -1,
    },
    "qwen2_vl": {
        "text_config": {**TEXT, "rope_parameters": AXES},
        "vision_config": {"depth": 2, "embed_dim": 16, "num_heads": 2, "hidden_size": 32, "patch_size": 4},
    },
    "qwen2_5_vl": {
        "text_config": {**TEXT, "rope_parameters": AXES},
        "vision_config": {
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 32,
            "patch_size": 4,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        },
    },
    "qwen3_vl": {
        "text_config": {**TEXT, "head_dim": 8, "rope_parameters": AXES},
        "vision_config": {
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 32,
            "patch_size": 4,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
    },
    "internvl": {
        "text_config": {"model_type": "qwen2", **TEXT},
        "vision_config": {**TOWER, "image_size": [32, 32], "patch_size": [8, 8]},
        "image_seq_length": 4,
    },
}
"""By a name that begins with the model type."""
GENERIC: Mapping[str, Mapping[str, Any]] = {
    "gemma3": {
        "text_config": {
            **TEXT,
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        "vision_config": {"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False},
        "mm_tokens_per_image": 4,
    },
}
"""Those that compute with their own attention only."""


def find_type(kind: str) -> str:
    """Return the model type of a name in `CONFIGS`."""
    return "llava" if kind.startswith("llava_") else kind


def draw(seed: int, width: int = 32, height: int = 32) -> ImagePart:
    """Draw a picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8).tobytes()
    return ImagePart(digest=hash_pixels(pixels, width, height), width=width, height=height, pixels=pixels)


def train_seeing_tokenizer(model_type: str, config: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    special = ("<|endoftext|>", *list_picture_tokens(model_type, config))
    return train_tokenizer(["the cat saw the dog"], vocab_size=256 + len(special) + 10, special_tokens=special)


def build_seeing(
    kind: str = "smolvlm", *, seed: int = 0, dtype: str = "float32", visible: bool = False, **changes: Any
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Eyes]:
    """Build a model with random weights and eyes on pictures in memory, and its tokenizer.

    `visible` draws weights so that everything the model does shows in its logits; it then has its own attention.
    """
    config = {**{**CONFIGS, **GENERIC}[kind], **changes}
    model_type = find_type(kind)
    tokenizer = train_seeing_tokenizer(model_type, config)
    completed = {"bos_token_id": 0, "eos_token_id": 0, **complete_config(model_type, config, tokenizer)}
    model = build_model(model_type, completed, vocab_size=count_ids(tokenizer), seed=seed, dtype=dtype)
    if visible:
        set_path(model, ModelPath(kind="generic", reason="drawn"))
        draw_weights(model, seed)
    attach_eyes(model, FamilyLayout(build_sight(model.config), tokenizer, where="test"), PictureStore(None))
    eyes = find_eyes(model)
    assert eyes is not None
    return model, tokenizer, eyes
