"""Trainer state on disk: a loadable Hugging Face directory plus state files. No pickle anywhere.

`state.safetensors` holds AdamW's moments by parameter name; its metadata holds the counters and what a credit method
remembers as JSON. A model trained beside the policy (a critic, an implicit reward model) has a file of its own name,
such as `critic.safetensors`, with its weights under "weight/" and moments under "moment/"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.errors import CheckpointError

STATE_FILE = "state.safetensors"


class Companion(Protocol):
    """A model that is trained beside the policy."""

    @property
    def own(self) -> torch.nn.Module:
        """The parameters that are its own."""
        ...

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What trains them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Where a run is. Everything random derives from these and the run's seed."""

    step: int
    """RL steps finished."""
    optimizer_steps: int
    """Of the RL optimizer."""
    version: int
    """Weight version."""
    tasks: int = 0
    """Training tasks RL has drawn."""
    credit: Mapping[str, Any] = field(default_factory=dict)
    """What the credit method remembers between steps, as JSON values; empty for most."""


def save_training_state(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer,
    counters: Counters,
    companions: Mapping[str, Companion] | None = None,
) -> None:
    """Write model, tokenizer, companions and state into an existing folder."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(_moments(model, optimizer), folder / STATE_FILE, metadata={"counters": json.dumps(asdict(counters))})
    for file, companion in (companions or {}).items():
        tensors = {f"weight/{name}": p.detach().contiguous() for name, p in companion.own.named_parameters()}
        tensors |= {f"moment/{name}": moment for name, moment in _moments(companion.own, companion.optimizer).items()}
        save_file(tensors, folder / f"{file}.safetensors")


def load_training_state(
    folder: Path,
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    companions: Mapping[str, Companion] | None = None,
) -> Counters:
    """Restore weights and moments in place, bit for bit, on whatever device the models are.

    Raises CheckpointError when a file is missing or broken, or a tensor's name or shape is not this model's.
    """
    try:
        weights = load_file(folder / "model.safetensors")
        moments = load_file(folder / STATE_FILE)
        of_companions = {name: load_file(folder / f"{name}.safetensors") for name in companions or {}}
        with safe_open(folder / STATE_FILE, framework="pt") as file:
            counters = Counters(**json.loads(file.metadata()["counters"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as cause:
        raise CheckpointError(
            f"checkpoint {folder} cannot be read ({type(cause).__name__}: {cause}); resume from an earlier one"
        ) from cause
    _restore(folder, model, optimizer, weights, moments)
    for name, companion in (companions or {}).items():
        found = of_companions[name]
        _restore(folder, companion.own, companion.optimizer, _below("weight/", found), _below("moment/", found))
    return counters


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
    parameters = dict(module.named_parameters())
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
    for name, parameter in parameters.items():
        keys = [k for k in moments if k.rpartition("/")[0] == name]
        if keys:
            optimizer.state[parameter] = {k.rpartition("/")[2]: moments[k].to(parameter.device) for k in keys}
