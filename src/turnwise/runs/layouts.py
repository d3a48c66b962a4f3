"""How the pictures of a recipe's model are written into prompts."""

from __future__ import annotations

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.config.catalog import find_model
from turnwise.config.run import RunConfig
from turnwise.core.pictures import Pictures
from turnwise.models.build import read_config_of
from turnwise.models.model_folder import read_model_type
from turnwise.models.vision.building import complete_config
from turnwise.models.vision.eyes import attach_eyes
from turnwise.models.vision.layout import FamilyLayout
from turnwise.models.vision.sight import build_sight, load_sight
from turnwise.models.vision.table import is_seeing
from turnwise.models.vocabulary import choose_vocab_size


def let_see(
    config: RunConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pictures: Pictures
) -> PreTrainedModel:
    """Let a recipe's model read `pictures`, and return it; a model of text only stays as it is."""
    layout = build_layout(config, tokenizer)
    if layout is not None:
        attach_eyes(model, layout, pictures)
    return model


def sees_pictures(config: RunConfig) -> bool:
    """Whether a recipe's model is shown pictures."""
    model = config.model
    return is_seeing(read_model_type(find_model(model.path)) if model.path else model.model_type)


def build_layout(config: RunConfig, tokenizer: PreTrainedTokenizerBase) -> FamilyLayout | None:
    """The layout of pictures for a recipe's model; None for a model of text only.

    Raises ConfigError if the image processor of `model.path` is missing, or the tokenizer is that of another model.
    """
    model = config.model
    if not sees_pictures(config):
        return None
    if model.path:
        where = f"model.path={model.path!r}"
        sight = load_sight(find_model(model.path), where)
    else:
        where = f"model.model_type={model.model_type!r}"
        sizes = complete_config(model.model_type, model.config, tokenizer)
        vocab_size = choose_vocab_size(model.config, tokenizer)
        sight = build_sight(read_config_of(model.model_type, sizes, vocab_size=vocab_size))
    return FamilyLayout(sight, tokenizer, where=where)
