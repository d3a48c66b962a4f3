"""Trainer state on disk: a loadable Hugging Face directory plus state files. No pickle anywhere.

Of a policy with an adapter the directory holds the adapter in peft's format instead of the weights.

`state.safetensors` holds AdamW's moments by parameter name; its metadata holds the counters as JSON. A model trained
beside the policy (a critic, an implicit reward model) has a file of its own name, such as `critic.safetensors`, with
its weights under "weight/" and moments under "moment/".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.errors import CheckpointError
from turnwise.models.lora import list_adapter, read_adapter, save_adapter
from turnwise.training.optimizer import Trained, list_trained

STATE_FILE = "state.safetensors"


def save_training_state(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer,
    counters: Mapping[str, Any],
    companions: Mapping[str, Trained] | None = None,
) -> None:
    """Write model, tokenizer, moments and `counters` (JSON values) into an existing folder.

    `companions` are models trained beside the policy, by the name of their file.
    """
    save_adapter(model, folder) if list_adapter(model) else model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(_moments(model, optimizer), folder / STATE_FILE, metadata={"counters": json.dumps(dict(counters))})
    for file, companion in (companions or {}).items():
        tensors = {f"weight/{name}": p.detach().contiguous() for name, p in list_trained(companion.module).items()}
        tensors |= {
            f"moment/{name}": moment for name, moment in _moments(companion.module, companion.optimizer).items()
        }
        save_file(tensors, folder / f"{file}.safetensors")


def load_training_state(
    folder: Path,
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    companions: Mapping[str, Trained] | None = None,
) -> dict[str, Any]:
    """Restore weights and moments in place, bit for bit, on whatever device the models are. Returns the counters.

    Raises CheckpointError when a file is missing or broken, or a tensor's name or shape is not this model's.
    """
    try:
        weights = _read_weights(folder, model)
        moments = load_file(folder / STATE_FILE)
        of_companions = {name: load_file(folder / f"{name}.safetensors") for name in companions or {}}
        with safe_open(folder / STATE_FILE, framework="pt") as file:
            counters: dict[str, Any] = dict(json.loads(file.metadata()["counters"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as cause:
        raise CheckpointError(
            f"checkpoint {folder} cannot be read ({type(cause).__name__}: {cause}); resume from an earlier one"
        ) from cause
    _restore(folder, model, optimizer, weights, moments)
    for name, companion in (companions or {}).items():
        tensors = of_companions[name]
        _restore(folder, companion.module, companion.optimizer, _below("weight/", tensors), _below("moment/", tensors))
    return counters


def load_weights(folder: Path, model: PreTrainedModel) -> None:
    """Restore a checkpoint's weights alone. Raises CheckpointError as `load_training_state` does."""
    try:
        weights = _read_weights(folder, model)
    except (OSError, SafetensorError) as cause:
        raise CheckpointError(
            f"checkpoint {folder} cannot be read ({type(cause).__name__}: {cause}); resume from an earlier one"
        ) from cause
    _restore_weights(folder, list_adapter(model) or dict(model.named_parameters()), weights)


def _read_weights(folder: Path, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint's policy, or of its adapter if `model` has one, by the names of the parameters."""
    return read_adapter(folder) if list_adapter(model) else load_file(folder / "model.safetensors")


def _moments(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """AdamW's moments as `parameter name/key`."""
    return {
        f"{name}/{key}": torch.as_tensor(value).contiguous()
        for name, parameter in module.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _below(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _restore(
    folder: Path,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: Mapping[str, torch.Tensor],
    moments: Mapping[str, torch.Tensor],
) -> None:
    """Copy weights and moments into place; see `load_training_state`."""
    _restore_weights(folder, list_trained(module), weights)
    optimizer.state.clear()
    for name, parameter in module.named_parameters():
        keys = [k for k in moments if k.rpartition("/")[0] == name]
        if keys:
            optimizer.state[parameter] = {k.rpartition("/")[2]: moments[k].to(parameter.device) for k in keys}


def _restore_weights(
    folder: Path, parameters: Mapping[str, torch.nn.Parameter], weights: Mapping[str, torch.Tensor]
) -> None:
    for name, tensor in weights.items():
        if name not in parameters or parameters[name].shape != tensor.shape:
            have = tuple(parameters[name].shape) if name in parameters else "no such parameter"
            raise CheckpointError(
                f"checkpoint {folder} holds {name} of shape {tuple(tensor.shape)}, this run's model has {have}; it "
                "belongs to another model"
            )
    missing = set(parameters) - set(weights)
    if missing:
        raise CheckpointError(
            f"checkpoint {folder} lacks {sorted(missing)[0]} and {len(missing) - 1} more; it belongs to another model"
        )
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)
