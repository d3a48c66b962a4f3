"""Describes the structure of a model as plain data: what another process needs to build the same model, besides its
tensors."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from turnwise.core.errors import ConfigError, boundary
from turnwise.models.attention import register_attention
from turnwise.models.experts import prepare_experts
from turnwise.models.lora import describe_adapter, inject_adapter
from turnwise.models.paths import describe_path, read_path, set_path
from turnwise.models.rope import attach_rope, find_pinned, pin_length
from turnwise.models.routing import ATTENTION_NAME
from turnwise.models.vision.building import ATTENTION
from turnwise.models.vision.eyes import build_eyes, describe_eyes
from turnwise.models.vision.table import is_seeing


def describe_structure(model: PreTrainedModel) -> dict[str, Any]:
    """Return the configuration of a model and of its adapter, the place of its own code if it has any, its path, and
    its eyes."""
    has_code = type(model).__module__.startswith("transformers_modules.")
    return {
        "config": json.loads(model.config.to_json_string(use_diff=False)),
        "code": model.config.name_or_path if has_code else None,
        "adapter": describe_adapter(model),
        "path": describe_path(model),
        "rope_length": find_pinned(model),
        "eyes": describe_eyes(model),
    }


def build_structure(description: Mapping[str, Any], device: torch.device) -> PreTrainedModel:
    """Build the described model in evaluation mode with empty tensors (on torch's meta device), for tensors that will
    be on `device`.

    Raises ConfigError if the installed transformers or peft cannot build it.
    """
    register_attention()
    code = description["code"]
    with boundary(ConfigError, "cannot build the trainer's model here"), torch.device("meta"):
        config = (
            AutoConfig.from_pretrained(code, trust_remote_code=True, local_files_only=True)
            if code
            else AutoConfig.for_model(**description["config"])
        )
        sees = is_seeing(config.model_type)
        kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        model: PreTrainedModel = kind.from_config(
            config, attn_implementation=ATTENTION if sees else ATTENTION_NAME, trust_remote_code=bool(code)
        )
        prepare_experts(model, device)
        if description["adapter"] is not None:
            inject_adapter(model, description["adapter"])
    whole: PreTrainedModel = model.eval()
    attach_rope(whole)
    if description["rope_length"] is not None:
        pin_length(whole, description["rope_length"])
    build_eyes(whole, description["eyes"])
    return set_path(whole, read_path(description["path"]))


def list_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name; tied ones once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def list_saved(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors that a model is saved as: its parameters, under every name of a tied one, and the saved
    buffers."""
    parameters: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    buffers = {
        f"{path}.{name}" if path else name: buffer
        for path, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }
    return parameters | buffers


def with_tensors(model: PreTrainedModel, tensors: Mapping[str, torch.Tensor]) -> PreTrainedModel:
    """Return a copy of a model that uses these tensors, not copied, as its parameters and buffers of the same names."""
    replaced: dict[int, Any] = {
        id(old): torch.nn.Parameter(tensors[name], requires_grad=old.requires_grad)
        if isinstance(old, torch.nn.Parameter)
        else tensors[name]
        for name, old in list_tensors(model).items()
        if name in tensors
    }
    return copy.deepcopy(model, replaced)


def without_weights(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model with empty parameters."""
    empty = {name: torch.empty_like(parameter, device="meta") for name, parameter in model.named_parameters()}
    return with_tensors(model, empty)
