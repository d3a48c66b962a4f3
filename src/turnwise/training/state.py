"""Trainer state on disk: a loadable Hugging Face directory plus one state file. No pickle anywhere.

`state.safetensors` holds AdamW's moments by parameter name; its metadata holds the counters as JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.errors import CheckpointError

STATE_FILE = "state.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Where a run is. Everything random derives from these and the run's seed."""

    step: int
    """RL steps finished."""
    optimizer_steps: int
    """Of the RL optimizer."""
    version: int
    """Weight version."""


def save_training_state(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, optimizer: torch.optim.Optimizer, counters: Counters
) -> None:
    """Write model, tokenizer and state into an existing folder."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{key}"] = torch.as_tensor(value).contiguous()
    save_file(tensors, folder / STATE_FILE, metadata={"counters": json.dumps(asdict(counters))})


def load_training_state(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> Counters:
    """Restore weights and moments in place, bit for bit.

    Raises CheckpointError when a file is missing or broken, or a tensor's name or shape is not this model's.
    """
    try:
        weights = load_file(folder / "model.safetensors")
        moments = load_file(folder / STATE_FILE)
        with safe_open(folder / STATE_FILE, framework="pt") as file:
            counters = Counters(**json.loads(file.metadata()["counters"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as cause:
        raise CheckpointError(
            f"checkpoint {folder} cannot be read ({type(cause).__name__}: {cause}); resume from an earlier one"
        ) from cause
    parameters = dict(model.named_parameters())
    for name, tensor in weights.items():
        if name not in parameters or parameters[name].shape != tensor.shape:
            have = tuple(parameters[name].shape) if name in parameters else "no such parameter"
            raise CheckpointError(
                f"checkpoint {folder} holds {name} of shape {tuple(tensor.shape)}, this run's model has {have}; it belongs to another model"
            )
    missing = set(parameters) - set(weights)
    if missing:
        raise CheckpointError(f"checkpoint {folder} lacks {sorted(missing)[0]} and {len(missing) - 1} more; it belongs to another model")
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)
    for name, parameter in parameters.items():
        keys = [k for k in moments if k.rpartition("/")[0] == name]
        if keys:
            optimizer.state[parameter] = {k.rpartition("/")[2]: moments[k] for k in keys}
    return counters
