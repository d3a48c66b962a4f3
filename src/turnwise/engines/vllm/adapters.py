"""Checks which adapters vLLM can hold."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from turnwise.config.lora import VLLM_RANKS
from turnwise.core.errors import EngineError
from turnwise.models.lora import describe_adapter, list_adapter
from turnwise.models.vision.eyes import find_eyes

REMEDY = "use engine.kind='paged'"
PATTERNS = ("rank_pattern", "alpha_pattern", "target_parameters", "layer_replication", "fan_in_fan_out")
"""peft options that make layers differ, or that vLLM interprets differently."""


def plan_room(model: PreTrainedModel) -> dict[str, Any] | None:
    """Return what vLLM must know about the model's adapter in advance: `max_rank`, one of `VLLM_RANKS`, and `layers`,
    the last parts of its layers' names. None for a model without an adapter.

    Raises EngineError for an adapter that vLLM cannot hold.
    """
    config = describe_adapter(model)
    if config is None:
        return None
    if find_eyes(model) is not None:
        raise EngineError(f"vLLM is given adapters of models that read text only; {REMEDY}")
    for option in PATTERNS:
        if config.get(option):
            raise EngineError(f"vLLM does not support adapters with {option}={config[option]!r}; {REMEDY}")
    if config["r"] > VLLM_RANKS[-1]:
        raise EngineError(
            f"vLLM supports adapters up to rank {VLLM_RANKS[-1]}, but this one has {config['r']}; lower it or {REMEDY}"
        )
    head = model.get_output_embeddings()
    adapted = {name.partition(".lora_")[0] for name in list_adapter(model)}
    for layer in sorted(adapted):
        if model.get_submodule(layer) is head:
            raise EngineError(f"vLLM does not support an adapter on the output layer {layer}; leave it out or {REMEDY}")
    return {
        "max_rank": next(rank for rank in VLLM_RANKS if rank >= config["r"]),
        "layers": sorted({layer.rpartition(".")[2] for layer in adapted}),
    }
