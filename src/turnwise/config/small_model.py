"""The model of a recipe that names none: small enough to learn from random weights on a laptop."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError

SMALL_MODEL: Mapping[str, JsonValue] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": True,
    "initializer_range": 0.1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}
"""What `model.config` becomes where `model.path` and `model.config` are empty: about 140,000 parameters with the
default vocabulary. A hidden size of 64 needs larger initial weights than transformers' 0.02, or the model learns to
copy ten times later.

The rotary base: the warm-up of `recipes/search_r1/tiny.toml` with `sft.steps=200 sft.num_demonstrations=3000` ends at a
loss of 0.08 with a base of 100 and of 0.19 and 0.14 with 10,000 (seeds 0 and 1). Names to be copied over more than a
hundred tokens may want heads of 32 and a base of a million (docs/results.md, ToolRL)."""

TYPES = ("qwen3", "qwen2", "llama")
"""Architectures with the names of `SMALL_MODEL`."""
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
"""What a config that is given must hold: for these, transformers' defaults are those of models of billions."""


def fill_model(config: RunConfig) -> RunConfig:
    """The recipe with `SMALL_MODEL` as its `model.config` where it names neither a directory nor sizes.

    A `model.config` that is given is used as it is, over the defaults of its architecture in transformers. Raises
    ConfigError if it lacks one of `SIZES`, so that neither the sizes of a model of billions nor those of the small
    model join it unseen; and if it is empty for an architecture whose sizes have other names.
    """
    model = config.model
    if model.path:
        return config
    small = ", ".join(f"{name} = {SMALL_MODEL[name]}" for name in SIZES)
    if not model.config:
        if model.model_type not in TYPES:
            raise ConfigError(
                f"model.path and model.config are empty, and model.model_type={model.model_type!r} has no default "
                f"sizes; set its sizes in model.config, or use one of {', '.join(TYPES)}"
            )
        return config.model_copy(update={"model": model.model_copy(update={"config": dict(SMALL_MODEL)})})
    missing = [name for name in SIZES if name not in model.config]
    if model.model_type in TYPES and missing:
        raise ConfigError(
            f"model.config sets {', '.join(model.config)} without {', '.join(missing)}; the rest would be "
            f"transformers' defaults, sized for a model with billions of parameters: set all four (small: {small}), or "
            "leave model.config empty for the small model"
        )
    return config
