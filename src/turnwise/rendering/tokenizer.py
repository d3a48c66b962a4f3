"""Tokenizers for models from scratch: byte-level BPE in which any text encodes and decodes back exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.core.errors import ConfigError, boundary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

QWEN3_SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
"""What a chat model of the Qwen3 family needs to be one token each."""

TAG_SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<search>",
    "</search>",
    "<information>",
    "</information>",
    "<answer>",
    "</answer>",
)
"""Search-R1's tags, one token each."""


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, special_tokens: Sequence[str]) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer trained on `texts`; the first special token is its end-of-sequence and padding token.

    Deterministic. The vocabulary is smaller than `vocab_size` when the texts have fewer merges to offer.
    Raises ConfigError when `vocab_size` leaves no room for the 256 bytes and the special tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    needed = 256 + len(special_tokens)
    if vocab_size < needed:
        raise ConfigError(f"tokenizer.vocab_size={vocab_size} is below the {needed} that all bytes and special tokens need")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=special_tokens[0],
        pad_token=special_tokens[0],
        additional_special_tokens=list(special_tokens[1:]),
        clean_up_tokenization_spaces=False,
    )


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a local Hugging Face directory. Raises ConfigError naming the path."""
    from transformers import AutoTokenizer

    with boundary(ConfigError, f"tokenizer at {str(path)!r} cannot be loaded; give a local Hugging Face directory"):
        return AutoTokenizer.from_pretrained(path, local_files_only=True)


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of untrusted text: a special token written out in it is encoded as plain characters, never as the token."""
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
