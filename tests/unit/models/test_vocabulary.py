"""Embeddings and tokenizers of different sizes: padding works, too few rows are refused."""

import pytest
from foreign_tokenizers import build_bare, build_slow
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from turnwise.core.errors import ConfigError
from turnwise.models.vocabulary import check_vocabulary, choose_vocab_size, count_ids
from turnwise.testing import build_tiny_model, build_tiny_tokenizer


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    return build_tiny_tokenizer(["a b"])


def test_padded_embeddings_fit_and_too_few_rows_do_not(tokenizer: PreTrainedTokenizerBase) -> None:
    size = len(tokenizer)
    for rows in (size, size + 100):
        check_vocabulary(build_tiny_model(vocab_size=rows), tokenizer, "model.path='x'")
    with pytest.raises(ConfigError, match=rf"the tokenizer has {size} ids, but the model only {size - 1} rows .*; set"):
        check_vocabulary(build_tiny_model(vocab_size=size - 1), tokenizer, "model.path='x'")


def test_ids_with_gaps_count_to_the_last() -> None:
    assert count_ids(build_bare()) == 260  # 4 control tokens and 256 bytes
    gaps = Tokenizer(models.WordLevel({"a": 0, "b": 400}, unk_token="a"))
    assert count_ids(PreTrainedTokenizerFast(tokenizer_object=gaps)) == 401


def test_a_tokenizer_that_cannot_decode_padding_is_refused() -> None:
    slow = build_slow()
    check_vocabulary(build_tiny_model(vocab_size=len(slow)), slow, "x")
    with pytest.raises(
        ConfigError, match=r"x: ByT5Tokenizer cannot decode the 12 ids .*resize_token_embeddings\(260\)"
    ):
        check_vocabulary(build_tiny_model(vocab_size=len(slow) + 12), slow, "x")


def test_random_weights_get_the_rows_that_are_asked_for(tokenizer: PreTrainedTokenizerBase) -> None:
    size = len(tokenizer)
    assert choose_vocab_size({}, tokenizer) == size
    assert choose_vocab_size({"vocab_size": size + 7}, tokenizer) == size + 7
    for wrong in (size - 1, "300", True, 300.5):
        with pytest.raises(ConfigError, match=rf"model\.config\.vocab_size={wrong!r} is too small for the {size} ids"):
            choose_vocab_size({"vocab_size": wrong}, tokenizer)
