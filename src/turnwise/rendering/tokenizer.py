"""Trains and loads tokenizers, and encodes untrusted text. Trained ones are byte-level BPE, which can encode any
text."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
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
"""Special tokens of Qwen3 chat models."""

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


Cuts = Literal["subwords", "words"]


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int, special_tokens: Sequence[str], split: Cuts = "subwords"
) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE tokenizer on `texts`.

    The first special token ends a sequence; `<|pad|>`, or else the first, pads. Deterministic: special tokens have the
    first ids, in the order given, then the bytes, then the merges. A word includes the space before it (" Mira" is one
    token if it is frequent). The vocabulary is smaller than `vocab_size` if the texts have fewer merges. Text encodes
    and decodes back exactly. `split` is where text is cut before merges, see `TokenizerSection`.

    Raises ConfigError if there is no special token, or if `vocab_size` leaves no room for them and the 256 bytes.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if not special_tokens:
        raise ConfigError("special_tokens is empty; a tokenizer needs at least one, to end a sequence")
    needed = 256 + len(special_tokens)
    if vocab_size < needed:
        raise ConfigError(
            f"tokenizer.vocab_size={vocab_size} is too small for all bytes and special tokens; use at least {needed}"
        )
    tokenizer = Tokenizer(models.BPE())
    if split == "words":
        words = pre_tokenizers.Split(Regex(r" ?\S+|\s+"), "isolated")
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    else:
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


def load_tokenizer(path: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a local Hugging Face directory; `~` is the home folder.

    Raises ConfigError naming the path and the remedy if there is none, it needs code that is not trusted or a package
    that is missing, or it cannot encode plain text.
    """
    from transformers import AutoTokenizer

    path = Path(os.path.expanduser(path))
    where = f"tokenizer at {str(path)!r} cannot be loaded"
    if path.is_file():
        raise ConfigError(f"{where}: it is a file; give the folder that holds it, {str(path.parent)!r}")
    if not path.is_dir():
        raise ConfigError(f"{where}: there is no such folder; use a local Hugging Face directory")
    _check_needs(path, where, trust_remote_code=trust_remote_code)
    with boundary(ConfigError, f"{where}; give a local Hugging Face directory"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust_remote_code
        )
        ids = tokenizer.encode(_PROBE, add_special_tokens=False)
    if all(token == tokenizer.unk_token_id for token in ids):
        # Without its files transformers builds an empty tokenizer of the model's class.
        raise ConfigError(
            f"{where}: it encodes {_PROBE!r} as {ids or 'no token at all'}, as a tokenizer without a vocabulary does; "
            "copy tokenizer.json or the vocabulary of the model into the folder, or set tokenizer.path"
        )
    return tokenizer


def _check_needs(path: Path, where: str, *, trust_remote_code: bool) -> None:
    """Raise ConfigError for a tokenizer that transformers cannot build from the folder alone."""
    try:
        table = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # transformers says what is wrong with it
        table = {}
    own_code = isinstance(table, dict) and "AutoTokenizer" in (table.get("auto_map") or {})
    if own_code and not trust_remote_code and (path / "tokenizer_config.json").is_file():
        raise ConfigError(
            f"{where}: its code is in the folder, not in transformers; read the code, then set "
            "model.trust_remote_code=true"
        )
    pieces = next((path / name for name in _SENTENCEPIECE_FILES if (path / name).is_file()), None)
    if pieces is None or (path / "tokenizer.json").is_file() or importlib.util.find_spec("sentencepiece"):
        return
    with pieces.open("rb") as stream:
        is_text = stream.read(64).isascii()  # of tiktoken: a line per token
    if not is_text:
        raise ConfigError(
            f"{where}: {pieces.name} is a SentencePiece model without a tokenizer.json; `pip install sentencepiece "
            "protobuf`, or save the tokenizer with transformers elsewhere, which writes tokenizer.json"
        )


def find_opening_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the token ids that the tokenizer itself puts before a text (`<s>`, `<|begin_of_text|>`); empty for none.

    Renderers of running text put them before a conversation, once. A chat template writes its own.
    """
    plain, whole = tokenizer.encode("a", add_special_tokens=False), tokenizer.encode("a")
    starts = (at for at in range(len(whole)) if plain and whole[at : at + len(plain)] == plain)
    return list(whole[: next(starts, 0)])


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str, *, continues: bool = False) -> list[int]:
    """Encode untrusted text. A special token spelled out in it becomes plain characters, never the token.

    So do added tokens that the tokenizer does not call special (Qwen3's `<tool_call>`). Lone surrogates, which no
    tokenizer can encode, become "?". `continues` says that other text precedes it: then no leading space is added, as
    SentencePiece tokenizers do at the start of a text.
    """
    text = text.encode(errors="replace").decode()
    ids: list[int] = []
    start = 0
    pattern = added_tokens_pattern(tokenizer)
    # A spelled-out token is encoded in two parts, so that the tokenizer never sees it whole.
    while match := pattern.search(text, start):
        ids += encode_part(tokenizer, text[start : match.start() + 1], continues=continues or start > 0)
        start = match.start() + 1
    return ids + encode_part(tokenizer, text[start:], continues=continues or start > 0)


def encode_part(tokenizer: PreTrainedTokenizerBase, text: str, *, continues: bool) -> list[int]:
    """Encode trusted text, in which added tokens are tokens; see `encode_text` for `continues`."""
    if not continues or not text or not _adds_space(tokenizer):
        return _encode(tokenizer, text)
    after = (_encode_after(tokenizer, before, text) for before in _BEFORE)
    return next((ids for ids in after if ids is not None), None) or _encode(tokenizer, text)


def _encode_after(tokenizer: PreTrainedTokenizerBase, before: str, text: str) -> list[int] | None:
    """Return the ids of `text` after `before`; None if a token joins the two."""
    head, whole = _encode(tokenizer, before), _encode(tokenizer, before + text)
    return whole[len(head) :] if whole[: len(head)] == head else None


def _adds_space(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer puts a space before the start of a text."""
    adds = _space_adders.get(tokenizer)
    if adds is None:
        after = (_encode_after(tokenizer, before, "a") for before in _BEFORE)
        inside = next((ids for ids in after if ids is not None), None)
        adds = _space_adders[tokenizer] = inside is not None and inside != _encode(tokenizer, "a")
    return adds


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

    # If no class changes the ids and nothing is cut or padded, the backend returns them in two thirds of the time.
    kind = type(tokenizer)
    if getattr(kind, "_encode_plus", None) is PreTrainedTokenizerFast._encode_plus:
        backend = tokenizer._tokenizer
        if kind.encode is PreTrainedTokenizerBase.encode and backend.truncation is None and backend.padding is None:
            return list(backend.encode(text, add_special_tokens=False).ids)
    return list(tokenizer.encode(text, add_special_tokens=False))


_PROBE = "The 1 a"
_BEFORE = ("\n", ".", "a")
"""Texts that rarely form a token together with what follows."""
_SENTENCEPIECE_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
_space_adders: WeakKeyDictionary[PreTrainedTokenizerBase, bool] = WeakKeyDictionary()
_patterns: WeakKeyDictionary[PreTrainedTokenizerBase, re.Pattern[str]] = WeakKeyDictionary()


def added_tokens_pattern(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """Return a pattern that matches each added token of the tokenizer, special or not; if there are none, it matches
    nothing."""
    pattern = _patterns.get(tokenizer)
    if pattern is None:
        literals = sorted(tokenizer.get_added_vocab(), key=len, reverse=True)
        pattern = _patterns[tokenizer] = re.compile("|".join(map(re.escape, literals)) or r"(?!)")
    return pattern
