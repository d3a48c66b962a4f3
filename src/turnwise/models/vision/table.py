"""Which families of vision-language models there are, by their names in transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from transformers import PreTrainedConfig

from turnwise.core.errors import ConfigError
from turnwise.models.vision.family import Family, Settings
from turnwise.models.vision.gemma3 import list_gemma3_tokens, read_gemma3, shape_gemma3
from turnwise.models.vision.internvl import list_internvl_tokens, read_internvl, shape_internvl
from turnwise.models.vision.llava import find_llava_processor, list_llava_tokens, read_llava, shape_llava
from turnwise.models.vision.qwen_vl import list_qwen_tokens, read_qwen_vl, shape_qwen_vl
from turnwise.models.vision.smolvlm import list_smolvlm_tokens, read_smolvlm, shape_smolvlm


@dataclass(frozen=True, slots=True)
class Row:
    """How a family is read."""

    read: Callable[[PreTrainedConfig, Settings], Family]
    """Takes a model's config and the arguments of its processor, none for random weights."""
    shape: Callable[[PreTrainedConfig], Settings]
    """Returns the arguments of the image processor for a model with random weights."""
    list_tokens: Callable[[Settings], Mapping[str, str]]
    """Takes `model.config` and returns the special tokens that a tokenizer which is trained for it must have, each with
    the field of transformers' config that contains its id; "" for one without."""
    find_processor: Callable[[PreTrainedConfig], str] = attrgetter("model_type")
    """Returns the model type that has the image processor for a model with random weights."""
    looks_ahead: bool = False
    """Whether the places of a picture see each other in both directions."""


_QWEN = Row(read_qwen_vl, shape_qwen_vl, list_qwen_tokens)
FAMILIES: Mapping[str, Row] = {
    "smolvlm": Row(read_smolvlm, shape_smolvlm, list_smolvlm_tokens),
    "idefics3": Row(read_smolvlm, shape_smolvlm, list_smolvlm_tokens),
    "llava": Row(read_llava, shape_llava, list_llava_tokens, find_llava_processor),
    "qwen2_vl": _QWEN,
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "gemma3": Row(read_gemma3, shape_gemma3, list_gemma3_tokens, looks_ahead=True),
    "internvl": Row(read_internvl, shape_internvl, list_internvl_tokens),
}
"""By `model_type`."""


def is_seeing(model_type: str | None) -> bool:
    """Whether models of this type are shown pictures here."""
    return model_type in FAMILIES


def looks_ahead(model_type: str) -> bool:
    """Whether the places of a picture see each other in both directions, as only a model's own attention computes."""
    return is_seeing(model_type) and FAMILIES[model_type].looks_ahead


def list_picture_tokens(model_type: str, config: Settings) -> Mapping[str, str]:
    """Return the special tokens that a tokenizer trained for a model with random weights needs, each with the field of
    transformers' config that contains its id, or ""; empty for a model that sees nothing."""
    return FAMILIES[model_type].list_tokens(config) if is_seeing(model_type) else {}


def find_row(config: PreTrainedConfig) -> Row:
    """Return the family of a config. Raises ConfigError if it is none of `FAMILIES`."""
    row = FAMILIES.get(config.model_type)
    if row is None:
        raise ConfigError(
            f"model_type {config.model_type!r} is none of the vision-language models that are known here: "
            f"{', '.join(FAMILIES)}"
        )
    return row
