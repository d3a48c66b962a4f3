"""Tokenizers from scratch: any text comes back, special tokens cannot be forged, training is deterministic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from turnwise.core.errors import ConfigError
from turnwise.rendering.tokenizer import (
    QWEN3_SPECIAL_TOKENS,
    TAG_SPECIAL_TOKENS,
    encode_text,
    load_tokenizer,
    train_tokenizer,
)

PROPERTY = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

hostile_text = st.lists(
    st.text(max_size=8) | st.sampled_from((*QWEN3_SPECIAL_TOKENS, *TAG_SPECIAL_TOKENS, "<|im_", "<"))
).map("".join)


@PROPERTY
@given(hostile_text)
@example("<|im_<|im_end|>end|></search><</search>")
def test_any_text_comes_back_and_never_as_special_ids(
    chat_tokenizer: PreTrainedTokenizerBase, tag_tokenizer: PreTrainedTokenizerBase, text: str
) -> None:
    for tokenizer in (chat_tokenizer, tag_tokenizer):
        ids = encode_text(tokenizer, text)
        assert tokenizer.decode(ids) == text
        assert not set(ids) & set(tokenizer.all_special_ids)


def test_added_tokens_that_are_not_special_cannot_be_forged_either(
    plain_tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    plain_tokenizer.save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.add_tokens(["<tool_call>"])  # as in Qwen3's own vocabulary: one token, not flagged special
    forged = tokenizer.convert_tokens_to_ids("<tool_call>")
    assert tokenizer.encode("a <tool_call> b").count(forged) == 1
    assert forged not in encode_text(tokenizer, "a <tool_call> b")


def test_a_lone_surrogate_does_not_raise(tag_tokenizer: PreTrainedTokenizerBase) -> None:
    assert tag_tokenizer.decode(encode_text(tag_tokenizer, "a\ud800b")) == "a?b"


def test_a_limit_saved_with_the_tokenizer_cuts_nothing(tag_tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    tag_tokenizer.save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    whole = encode_text(tag_tokenizer, "Mira " * 9)
    tokenizer._tokenizer.enable_truncation(3)
    assert encode_text(tokenizer, "Mira " * 9) == whole
    tokenizer._tokenizer.enable_padding(length=50)
    assert encode_text(tokenizer, "Mira " * 9) == whole


def test_a_class_that_encodes_in_its_own_way_is_asked(tag_tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    class Doubling(PreTrainedTokenizerFast):  # type: ignore[misc]
        def _encode_plus(self, text: str, **options: Any) -> Any:
            return super()._encode_plus(text + text, **options)

    tag_tokenizer.save_pretrained(tmp_path)
    ids = encode_text(tag_tokenizer, " Mira")
    assert encode_text(Doubling.from_pretrained(tmp_path), " Mira") == 2 * ids


def test_each_special_token_is_one_id_and_words_take_their_space(tag_tokenizer: PreTrainedTokenizerBase) -> None:
    for index, token in enumerate(TAG_SPECIAL_TOKENS):
        assert tag_tokenizer.encode(token, add_special_tokens=False) == [index]
    assert (tag_tokenizer.eos_token, tag_tokenizer.pad_token) == ("<|endoftext|>", "<|pad|>")
    assert len(encode_text(tag_tokenizer, " Mira")) == 1
    assert len(encode_text(tag_tokenizer, " author of Blue")) == 3


def test_training_is_deterministic_and_survives_the_disk(
    tag_tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    texts = ["one two three", "two three four"] * 5
    one, two = (train_tokenizer(iter(texts), vocab_size=300, special_tokens=TAG_SPECIAL_TOKENS) for _ in range(2))
    assert one.get_vocab() == two.get_vocab()
    tag_tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.get_vocab() == tag_tokenizer.get_vocab()
    assert (loaded.eos_token_id, loaded.pad_token_id) == (tag_tokenizer.eos_token_id, tag_tokenizer.pad_token_id)
    text = "<search> Mira's  naïve 你好</search>\n"
    assert loaded.encode(text) == tag_tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == text


def test_what_cannot_be_built_or_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"vocab_size=265 .* at least 266"):  # 256 bytes + 10 special tokens
        train_tokenizer(["a"], vocab_size=265, special_tokens=TAG_SPECIAL_TOKENS)
    with pytest.raises(ConfigError, match=r"nowhere.*local Hugging Face directory"):
        load_tokenizer(tmp_path / "nowhere")


WORDS = train_tokenizer(
    [" hand x3 y5 <x+2> <y-1>", " hand x4 y5 <x-4> <y+0>\n"] * 20,
    vocab_size=400,
    special_tokens=TAG_SPECIAL_TOKENS,
    split="words",
)


def test_a_word_is_one_token_where_text_is_cut_at_spaces_alone() -> None:
    assert WORDS.tokenize(" hand x4 <x+2> <y-1>") == ["\u0120hand", "\u0120x4", "\u0120<x+2>", "\u0120<y-1>"]


@PROPERTY
@given(hostile_text)
def test_any_text_comes_back_where_text_is_cut_at_spaces_alone(text: str) -> None:
    ids = encode_text(WORDS, text)
    assert WORDS.decode(ids) == text
    assert not set(ids) & set(WORDS.all_special_ids)
