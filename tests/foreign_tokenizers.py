"""Small tokenizers in the forms that models bring: SentencePiece's with and without a space in front, byte-level ones,
slow ones. Each puts `<s>` before a text by itself but where its name says otherwise."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

CONTROL = ("<unk>", "<s>", "</s>", "<|im_end|>")
WORDS = ("Mira", "Tolen", "wrote", "Blue", "Lantern", "User", "Assistant", "Action", "Input", "search", "answer")
CHARACTERS = "".join(map(chr, range(33, 127)))


def _list_pieces() -> list[str]:
    """Control tokens, bytes, characters, words with and without a space in front."""
    pieces = [*CONTROL, *(f"<0x{value:02X}>" for value in range(256)), "▁", *CHARACTERS]
    return [*pieces, *(word for plain in WORDS for word in ("▁" + plain, plain))]


def _build_bpe() -> models.BPE:
    vocabulary = {piece: index for index, piece in enumerate(_list_pieces())}
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            vocabulary.setdefault(word[:end], len(vocabulary))
            merges.append((word[: end - 1], word[end - 1]))
        merges.append(("▁", word))
    merges = list(dict.fromkeys(merges))
    return models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)


def _build_unigram() -> models.Unigram:
    scores = [(piece, -10.0 if len(piece.strip("▁")) < 2 else -2.0) for piece in _list_pieces()]
    return models.Unigram(scores, unk_id=0, byte_fallback=True)


def _wrap(backend: Tokenizer, *, adds_bos: bool = True) -> PreTrainedTokenizerBase:
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in CONTROL])
    if adds_bos:
        single = [("<s>", backend.token_to_id("<s>"))]
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=single)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def _finish(backend: Tokenizer, *, strips: bool) -> PreTrainedTokenizerBase:
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if strips else [])])
    return _wrap(backend)


def build_legacy() -> PreTrainedTokenizerBase:
    """As Llama 2 and Mistral 7B: BPE, and a space before every text and after every control token."""
    backend = Tokenizer(_build_bpe())
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _finish(backend, strips=True)


def build_first() -> PreTrainedTokenizerBase:
    """As later Llama and Mistral files: BPE, and a space before a text only."""
    backend = Tokenizer(_build_bpe())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    return _finish(backend, strips=True)


def build_unspaced() -> PreTrainedTokenizerBase:
    """As Gemma: BPE without a space in front."""
    backend = Tokenizer(_build_bpe())
    backend.normalizer = normalizers.Replace(" ", "▁")
    return _finish(backend, strips=False)


def build_unigram() -> PreTrainedTokenizerBase:
    """As XGLM and other Unigram models: a space before every piece of text."""
    backend = Tokenizer(_build_unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return _finish(backend, strips=True)


def _build_bytes(*, adds_bos: bool, prefix_space: bool = False) -> PreTrainedTokenizerBase:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({token: index for index, token in enumerate((*CONTROL, *alphabet))}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    return _wrap(backend, adds_bos=adds_bos)


def build_byte_level() -> PreTrainedTokenizerBase:
    """As Llama 3: byte-level BPE with a first token."""
    return _build_bytes(adds_bos=True)


def build_bare() -> PreTrainedTokenizerBase:
    """As Qwen: byte-level BPE without a first token."""
    return _build_bytes(adds_bos=False)


def build_prefixed() -> PreTrainedTokenizerBase:
    """As RoBERTa's relatives: byte-level BPE that puts a space before every text."""
    return _build_bytes(adds_bos=True, prefix_space=True)


def build_slow() -> PreTrainedTokenizerBase:
    """In Python, without a backend: a token per byte, and no first token."""
    from transformers import ByT5Tokenizer

    tokenizer: PreTrainedTokenizerBase = ByT5Tokenizer(eos_token=AddedToken("</s>", special=True), extra_ids=0)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    return tokenizer


def write_tiktoken(folder: Path) -> Path:
    """A folder with a vocabulary in tiktoken's form, as Llama 3's original files."""
    folder.mkdir()
    ranks = [*(bytes([value]) for value in range(256)), b"Mi", b"ra", b"Mira", b" w"]
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ranks)]
    (folder / "tokenizer.model").write_text("".join(lines))
    table = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end_of_text|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(table))
    return folder


TOKENIZERS = {
    "legacy SentencePiece": build_legacy,
    "SentencePiece": build_first,
    "SentencePiece without a space in front": build_unspaced,
    "Unigram": build_unigram,
    "byte-level": build_byte_level,
    "byte-level without a first token": build_bare,
    "byte-level with a space in front": build_prefixed,
    "slow": build_slow,
}
