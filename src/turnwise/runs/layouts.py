"""How the pictures of a recipe's model are written into prompts."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.config.catalog import find_model
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
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
    loaded_from = Path(model.config.name_or_path) if model.config.name_or_path else None
    layout = build_layout(config, tokenizer, loaded_from) if is_seeing(model.config.model_type) else None
    if layout is not None:
        attach_eyes(model, layout, pictures)
    return model


def sees_pictures(config: RunConfig, checkpoint: Path | None = None) -> bool:
    """Whether a recipe's model is shown pictures; by a `checkpoint` of it where `model.path` is gone."""
    folder = _find_folder(config, checkpoint)
    return is_seeing(config.model.model_type if folder is None else read_model_type(folder))


def build_layout(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase, checkpoint: Path | None = None
) -> FamilyLayout | None:
    """The layout of pictures for a recipe's model; None for a model of text only. Its processor is that of
    `model.path`, or of a `checkpoint` of the run where that folder is gone.

    Raises ConfigError if the image processor is missing, or the tokenizer is that of another model.
    """
    model = config.model
    if not sees_pictures(config, checkpoint):
        return None
    if (folder := _find_folder(config, checkpoint)) is not None:
        where = f"model.path={model.path!r}"
        sight = load_sight(folder, where)
    else:
        where = f"model.model_type={model.model_type!r}"
        sizes = complete_config(model.model_type, model.config, tokenizer)
        vocab_size = choose_vocab_size(model.config, tokenizer)
        sight = build_sight(read_config_of(model.model_type, sizes, vocab_size=vocab_size))
    return FamilyLayout(sight, tokenizer, where=where)


def _find_folder(config: RunConfig, checkpoint: Path | None) -> Path | None:
    """The folder that says how a pretrained model is shown pictures; None for random weights."""
    if not config.model.path:
        return None
    with suppress(ConfigError):  # the model that the run started from may have left the cache
        folder = find_model(config.model.path)
        if folder.is_dir() or checkpoint is None:
            return folder
    return Path(config.model.path) if checkpoint is None else checkpoint
