"""Writes a folder of the shape of SmolVLM-256M-Instruct with random weights, for `recipes/seeing/smolvlm.toml`.

    python tests/smolvlm_folder.py FOLDER [--layers N] [--tiles]

Sizes, special tokens, chat template and processor are those of the published model; the tokenizer is a small one with
the same special tokens. `--layers` gives text part and tower fewer layers than their 30 and 12; `--tiles` cuts pictures
into tiles, as the published processor does (1,088 places for a square picture instead of 64).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, PreTrainedTokenizerBase
from transformers.models.smolvlm.configuration_smolvlm import SmolVLMConfig
from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE

from turnwise.rendering.tokenizer import train_tokenizer

VOCAB_SIZE = 49280
SPECIAL = (
    "<|im_end|>",
    "<end_of_utterance>",
    "<|im_start|>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
)
PROCESSOR: dict[str, Any] = {
    "image_processor_type": "SmolVLMImageProcessor",
    "do_convert_rgb": True,
    "do_image_splitting": False,
    "do_normalize": True,
    "do_pad": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "max_image_size": {"longest_edge": 512},
    "resample": 1,
    "rescale_factor": 1 / 255,
    "size": {"longest_edge": 2048},
}


def write_processor(folder: Path, texts: Sequence[str], *, tiles: bool = False) -> PreTrainedTokenizerBase:
    """Write tokenizer and processor files; returns the tokenizer, trained on `texts`."""
    tokenizer = train_tokenizer(texts, vocab_size=1024, special_tokens=SPECIAL)
    tokenizer.chat_template = DEFAULT_CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    table = PROCESSOR | {"do_image_splitting": tiles}
    (folder / "preprocessor_config.json").write_text(json.dumps(table), encoding="utf-8")
    settings = {"processor_class": "SmolVLMProcessor", "image_seq_len": 64}
    (folder / "processor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return tokenizer


def build_config(tokenizer: PreTrainedTokenizerBase, *, layers: int | None = None) -> SmolVLMConfig:
    """The model's config, with the tokenizer's ids."""
    return SmolVLMConfig(
        text_config={
            "model_type": "llama",
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": layers or 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "vocab_size": VOCAB_SIZE,
            "max_position_embeddings": 8192,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
            "bos_token_id": tokenizer.convert_tokens_to_ids("<|im_start|>"),
            "eos_token_id": tokenizer.convert_tokens_to_ids("<end_of_utterance>"),
            "pad_token_id": None,
        },
        vision_config={
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": layers or 12,
            "num_attention_heads": 12,
            "image_size": 512,
            "patch_size": 16,
        },
        scale_factor=4,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )


def write_folder(folder: Path, *, layers: int | None = None, tiles: bool = False) -> None:
    """Write the whole folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = (
        "The picture is a page, averaged down. zoom(row, column) enlarges one of its parts. Which digit is in the cell?"
    )
    tokenizer = write_processor(folder, [words] * 3, tiles=tiles)
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(build_config(tokenizer, layers=layers), dtype=torch.float32)
    model.save_pretrained(folder)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tiles", action="store_true")
    given = parser.parse_args()
    write_folder(given.folder, layers=given.layers, tiles=given.tiles)
