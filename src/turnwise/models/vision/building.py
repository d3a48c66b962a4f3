"""Builds vision-language models: the text part with Turnwise's attention, the tower with torch's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from turnwise.config.small_model import SIZES
from turnwise.core.errors import ConfigError
from turnwise.models.routing import ATTENTION_NAME
from turnwise.models.vision.table import list_picture_tokens

ATTENTION = {"text_config": ATTENTION_NAME, "vision_config": "sdpa"}
"""The tower's places see each other in both directions, which a plan for sequences refuses."""
_OF_TEXT = ("vocab_size", "bos_token_id", "eos_token_id")
TEXT = "text_config"


def build_config(model_type: str, config: Mapping[str, Any], *, vocab_size: int) -> PreTrainedConfig:
    """Build the config of a vision-language model from `model.config`: what belongs to the text goes into its
    `text_config`.

    `config` contains the ids of the family's special tokens (`complete_config`). Raises ConfigError if it leaves sizes
    to transformers, whose defaults are those of models of billions.
    """
    missing = [f"text_config.{name}" for name in SIZES if name not in (config.get(TEXT) or {})]
    missing += [] if config.get("vision_config") else ["vision_config"]
    if missing:
        raise ConfigError(
            f"model.config lacks {', '.join(missing)}; the rest would be transformers' defaults, sized for a model "
            "with billions of parameters"
        )
    outer = {name: value for name, value in config.items() if name not in _OF_TEXT}
    given = {name: config[name] for name in _OF_TEXT if name in config}
    none = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))  # the defaults may be beyond the vocabulary
    text = {**none, **given, **dict(outer.get(TEXT) or {}), "vocab_size": vocab_size}
    return AutoConfig.for_model(model_type, **{**outer, TEXT: text})


def complete_config(model_type: str, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return `model.config` with the ids of the tokenizer's special tokens for pictures; the same for a model that sees
    nothing.

    Raises ConfigError if the tokenizer lacks one of them.
    """
    known = tokenizer.get_vocab()
    ids = {}
    for token, field in list_picture_tokens(model_type, config).items():
        if token not in known:
            raise ConfigError(
                f"the tokenizer lacks {token!r}, which model.model_type={model_type!r} needs; leave tokenizer.path "
                "empty to train one that has it, or add it to the tokenizer"
            )
        if field:
            ids[field] = known[token]
    return {**config, **ids}
