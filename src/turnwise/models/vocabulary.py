"""Counts the token ids of a tokenizer, and checks that a model has a row for each.

Embeddings are often padded beyond the tokenizer's ids. Sampling draws from all rows, as in transformers and vLLM; an id
that the tokenizer does not know decodes to empty text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.errors import ConfigError, boundary


def count_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the largest id that the tokenizer produces, plus one: ids may have gaps."""
    return max(len(tokenizer), *(int(token) + 1 for token in tokenizer.get_vocab().values()))


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, where: str) -> None:
    """Raise ConfigError, in a message that begins with `where`, if the tokenizer produces ids for which `model` has no
    row, or cannot decode ids that it does not produce."""
    num_rows, num_ids = int(model.get_input_embeddings().weight.shape[0]), count_ids(tokenizer)
    if num_ids > num_rows:
        raise ConfigError(
            f"{where}: the tokenizer has {num_ids} ids, but the model only {num_rows} rows of embeddings; set "
            "tokenizer.path to the model's own tokenizer, or resize the model in transformers with "
            f"model.resize_token_embeddings({num_ids}), and save_pretrained"
        )
    padding = sorted(set(range(num_rows)) - {int(token) for token in tokenizer.get_vocab().values()})
    with boundary(
        ConfigError,
        f"{where}: {type(tokenizer).__name__} cannot decode the {len(padding)} ids that the model can sample and the "
        f"tokenizer lacks; resize the model in transformers with model.resize_token_embeddings({num_ids}), and "
        "save_pretrained, or give the tokenizer a tokenizer.json",
    ):
        tokenizer.decode(padding)


def choose_vocab_size(config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the number of embedding rows for a model with random weights: `vocab_size` in `model.config` or in its
    `text_config`, or one for each id.

    Raises ConfigError if `model.config` specifies fewer rows than the tokenizer has ids.
    """
    num_ids, text = count_ids(tokenizer), config.get("text_config")
    wanted = config.get("vocab_size", text.get("vocab_size") if isinstance(text, Mapping) else None)
    if wanted is None:
        return num_ids
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < num_ids:
        raise ConfigError(
            f"model.config.vocab_size={wanted!r} is too small for the {num_ids} ids of the tokenizer; leave it out "
            f"(one row per id), set at least {num_ids}, or lower tokenizer.vocab_size"
        )
    return wanted
