"""Small tokenizers trained once for all rendering tests."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, TAG_SPECIAL_TOKENS, train_tokenizer

TEXTS = ["Mira Tolen wrote Blue Lantern.", "The author of Blue Lantern is Mira Tolen. What is the author of X ?"] * 40


@pytest.fixture(scope="session")
def tag_tokenizer() -> PreTrainedTokenizerBase:
    """Every tag is one token."""
    return train_tokenizer(TEXTS, vocab_size=400, special_tokens=TAG_SPECIAL_TOKENS)


@pytest.fixture(scope="session")
def plain_tokenizer() -> PreTrainedTokenizerBase:
    """Tags are plain text."""
    return train_tokenizer(TEXTS, vocab_size=400, special_tokens=("<|endoftext|>",))


@pytest.fixture(scope="session")
def chat_tokenizer() -> PreTrainedTokenizerBase:
    """Qwen3's special tokens, trained here."""
    return train_tokenizer(TEXTS, vocab_size=400, special_tokens=QWEN3_SPECIAL_TOKENS)
