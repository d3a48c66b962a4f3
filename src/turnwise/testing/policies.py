"""A policy with random weights and its text format, small enough to be built in every test.

Importing this loads no torch: who checks an environment waits for none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TINY_CONFIG = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": True,
    # With weights of this size, instead of transformers' 0.02, so small a model soon begins to copy words.
    "initializer_range": 0.1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}


def build_tiny_tokenizer(texts: Iterable[str], *, vocab_size: int = 400) -> PreTrainedTokenizerBase:
    """A tokenizer of at most `vocab_size` tokens, trained on `texts`, that has every tag of Search-R1's format."""
    return train_tokenizer(texts, vocab_size=vocab_size, special_tokens=TAG_SPECIAL_TOKENS)


def build_tiny_renderer(tokenizer: PreTrainedTokenizerBase) -> TagRenderer:
    """Search-R1's tags, one token each: `<search> query </search>` calls the tool, `<answer> text </answer>` ends the
    episode."""
    return TagRenderer(tokenizer)


def build_tiny_model(
    *, vocab_size: int = 400, seed: int = 0, dtype: str = "float32", **changes: Any
) -> PreTrainedModel:
    """A Qwen3 model of about 30,000 parameters with random weights, a function of `seed`, on the CPU.

    `changes` replace fields of `TINY_CONFIG`."""
    from turnwise.models.build import build_model

    return build_model("qwen3", {**TINY_CONFIG, **changes}, vocab_size=vocab_size, seed=seed, dtype=dtype)
