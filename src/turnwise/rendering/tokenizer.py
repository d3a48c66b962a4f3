"""Train and load tokenizers, and encode untrusted text. Trained ones are byte-level BPE, which any text survives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

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
"""Special tokens of chat models of the Qwen3 family."""

TAG_SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|pad|>",
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
    """Train a byte-level BPE tokenizer on `texts`.

    The first special token ends a sequence; `<|pad|>`, or else the first, pads. Deterministic: special tokens have the
    first ids, in the order given, then the bytes, then the merges. A word includes the space before it (" Mira" is one
    token if it is frequent). The vocabulary is smaller than `vocab_size` if the texts have fewer merges. Text encodes
    and decodes back exactly.

    Raises ConfigError if there is no special token, or if `vocab_size` leaves no room for them and the 256 bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if not special_tokens:
        raise ConfigError("special_tokens is empty; a tokenizer needs at least one, which ends a sequence")
    needed = 256 + len(special_tokens)
    if vocab_size < needed:
        raise ConfigError(
            f"tokenizer.vocab_size={vocab_size} is too small for all bytes and special tokens; use at least {needed}"
        )
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
        pad_token="<|pad|>" if "<|pad|>" in special_tokens else special_tokens[0],
        additional_special_tokens=list(special_tokens[1:]),
        clean_up_tokenization_spaces=False,
    )


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a local Hugging Face directory. Raises ConfigError naming the path."""
    from transformers import AutoTokenizer

    with boundary(ConfigError, f"tokenizer at {str(path)!r} cannot be loaded; give a local Hugging Face directory"):
        return AutoTokenizer.from_pretrained(path, local_files_only=True)


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Encode untrusted text. A special token spelled out in it becomes plain characters, never the token.

    So do added tokens that the tokenizer does not call special (Qwen3's `<tool_call>`). Lone surrogates, which no
    tokenizer can encode, become "?".
    """
    text = text.encode(errors="replace").decode()
    ids: list[int] = []
    start = 0
    pattern = added_tokens_pattern(tokenizer)
    # A spelled-out token is encoded in two parts, so that the tokenizer never sees it whole.
    while match := pattern.search(text, start):
        ids += _encode(tokenizer, text[start : match.start() + 1])
        start = match.start() + 1
    return ids + _encode(tokenizer, text[start:])


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

    # Where no class changes the ids and nothing is cut or padded, the backend gives them in two thirds of the time.
    kind = type(tokenizer)
    if getattr(kind, "_encode_plus", None) is PreTrainedTokenizerFast._encode_plus:
        backend = tokenizer._tokenizer
        if kind.encode is PreTrainedTokenizerBase.encode and backend.truncation is None and backend.padding is None:
            return list(backend.encode(text, add_special_tokens=False).ids)
    return list(tokenizer.encode(text, add_special_tokens=False))


_patterns: WeakKeyDictionary[PreTrainedTokenizerBase, re.Pattern[str]] = WeakKeyDictionary()


def added_tokens_pattern(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """Return a pattern that matches each added token of the tokenizer, special or not; without any, nothing."""
    pattern = _patterns.get(tokenizer)
    if pattern is None:
        literals = sorted(tokenizer.get_added_vocab(), key=len, reverse=True)
        pattern = _patterns[tokenizer] = re.compile("|".join(map(re.escape, literals)) or r"(?!)")
    return pattern
