"""What every model of a run goes through before it samples or trains: one length for its rope, and the engine's check.

`models.build` has chosen the model's path by then, with the trainer's layouts."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.engines.check import check_steps
from turnwise.models.paths import find_path
from turnwise.models.rope import pin_length
from turnwise.models.routing import find_routing, is_mixture
from turnwise.models.vision.tower import freeze_tower, list_tower


def settle_model(config: RunConfig, model: PreTrainedModel) -> PreTrainedModel:
    """Freeze the tower if the recipe says so, pin the length that ropes turn by, and let the model take the generic
    path if the engine's steps need it; returns it. Raises ConfigError where no path computes the model."""
    _freeze(config, model)
    _check_positions(model, config.engine.max_context)
    pin_length(model, config.engine.max_context)
    if not find_engine_kind(config.engine.kind).has_checked_steps:
        return model  # other kinds have checks of their own (a canary, the parity gate)
    options = config.engine.options
    return check_steps(
        model,
        fused=None if options.get("fused", True) else False,
        attention=str(options.get("attention", "gather")),
    )


def _freeze(config: RunConfig, model: PreTrainedModel) -> None:
    if config.model.freeze_vision is not None and not list_tower(model):
        raise ConfigError("model.freeze_vision is set, but the model reads text only; leave it out")
    if config.model.freezes_vision:
        freeze_tower(model)


def _check_positions(model: PreTrainedModel, length: int) -> None:
    """Raise ConfigError where a model has an embedding for each of fewer positions (GPT-2, OPT): the next token has
    none."""
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if most is None or length <= most:
        return
    words = model.get_input_embeddings()
    for name, layer in model.named_modules():
        # OPT and BART keep two rows in front of those of the positions.
        if isinstance(layer, torch.nn.Embedding) and layer is not words and most <= layer.num_embeddings <= most + 2:
            raise ConfigError(
                f"engine.max_context={length} is longer than the {most} positions that the model was trained on "
                f"({name}); set engine.max_context={most} or less, and rollout.max_tokens to fit"
            )


def describe_model_path(config: RunConfig, model: PreTrainedModel) -> str:
    """One line for people: how the model computes, and the length that its rope is turned by where that matters."""
    text = find_path(model).describe()
    if is_mixture(model) and find_routing(model) is None:
        text += "; its experts are not recorded, so its routers choose again in training (docs/moe.md)"
    if pin_length(model, config.engine.max_context):
        text += f"; its rope is set for {config.engine.max_context} tokens (engine.max_context)"
    return text
