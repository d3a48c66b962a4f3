"""Trainer state on disk: a loadable Hugging Face directory plus state files, without pickle.

For a policy with an adapter, the directory holds the adapter in peft's format instead of the weights.

`state.safetensors` holds the optimizer's moments by parameter name, the float32 masters of weights in a short format as
"NAME/master", and a loss scale as "loss_scale/KEY"; its metadata holds the counters as JSON. A model trained beside the
policy (a critic, an implicit reward model) has its own file, such as `critic.safetensors`, with its weights (their
masters) under "weight/" and moments under "moment/".

If ranks share the models, they write these files' tensors together (see `training/shards.py`), and `save_policy` writes
the directory. Either kind of checkpoint can be loaded by one process and by any number of ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.errors import CheckpointError
from turnwise.models.lora import is_adapter_name, list_adapter, read_adapter, save_adapter
from turnwise.models.rows import cut_rows, is_cut, is_shared, own_rows
from turnwise.models.structure import list_saved
from turnwise.models.tensor_names import compare_shapes
from turnwise.models.vision.eyes import save_processor
from turnwise.models.weight_files import read_tensors
from turnwise.training.loss_scale import SCALE
from turnwise.training.masters import SHORT, find_master, round_masters
from turnwise.training.optimizer import Trained, list_trained
from turnwise.training.shards import FOLDER as SHARDS
from turnwise.training.shards import load_shards, read_shard_counters, save_shards

STATE_FILE = "state.safetensors"
MASTER = "master"


def save_training_state(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    optimizer: torch.optim.Optimizer,
    counters: Mapping[str, Any],
    companions: Mapping[str, Trained] | None = None,
) -> None:
    """Write model, tokenizer, moments and `counters` (JSON values) into an existing folder; a rank writes its rows.

    `companions` are models trained beside the policy, by the names of their files.
    """
    if is_shared(model):
        save_shards(folder, _name_models(model, optimizer, companions), counters)
        return
    save_policy(folder, model, tokenizer)
    state = _moments(model, optimizer) | {
        f"{name}/{MASTER}": find_master(parameter).detach()
        for name, parameter in list_trained(model).items()
        if find_master(parameter) is not parameter
    }
    save_file(state, folder / STATE_FILE, metadata={"counters": json.dumps(dict(counters))})
    for file, companion in (companions or {}).items():
        tensors = {
            f"weight/{name}": find_master(p).detach().contiguous() for name, p in list_trained(companion.module).items()
        }
        tensors |= {
            f"moment/{name}": moment for name, moment in _moments(companion.module, companion.optimizer).items()
        }
        save_file(tensors, folder / f"{file}.safetensors")


def save_policy(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Write the Hugging Face directory of a whole policy, or its adapter in peft's format, and the tokenizer."""
    if list_adapter(model):
        save_adapter(model, folder)
    else:
        # Named like the parameters, so that `load_training_state` finds them; the original format splits experts.
        model.save_pretrained(folder, save_original_format=False)
        save_processor(model, folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def load_training_state(
    folder: Path,
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    companions: Mapping[str, Trained] | None = None,
) -> dict[str, Any]:
    """Restore weights and moments in place, bit for bit, on the models' devices. Returns the counters.

    Raises CheckpointError if a file is missing or broken, or a tensor's name or shape is not this model's.
    """
    if (folder / SHARDS).is_dir():
        return load_shards(folder, _name_models(model, optimizer, companions))
    with _reading(folder):
        weights = _read_weights(folder, model)
        moments = load_file(folder / STATE_FILE)
        of_companions = {name: load_file(folder / f"{name}.safetensors") for name in companions or {}}
        counters = dict(read_counters(folder))
    of_policy = list_adapter(model) or list_saved(model)
    _check_tensors(folder, of_policy, weights)
    for name, companion in (companions or {}).items():
        _check_tensors(folder, list_trained(companion.module), _below("weight/", of_companions[name]), f"{name}: ")
    _restore(model, optimizer, of_policy, weights, moments)
    for name, companion in (companions or {}).items():
        tensors, parameters = of_companions[name], list_trained(companion.module)
        below = _below("weight/", tensors), _below("moment/", tensors)
        _restore(companion.module, companion.optimizer, parameters, *below)
    return counters


def read_counters(folder: Path) -> Mapping[str, Any]:
    """Return a checkpoint's counters alone. Raises CheckpointError as `load_training_state` does."""
    with _reading(folder):
        if (folder / SHARDS).is_dir():
            return read_shard_counters(folder)
        with safe_open(folder / STATE_FILE, framework="pt") as file:
            return dict(json.loads(file.metadata()["counters"]))


def load_weights(folder: Path, model: PreTrainedModel) -> None:
    """Restore a checkpoint's weights alone. Raises CheckpointError as `load_training_state` does."""
    with _reading(folder):
        weights = _read_weights(folder, model)
    of_policy = list_adapter(model) or list_saved(model)
    _check_tensors(folder, of_policy, weights)
    _restore_weights(of_policy, weights)


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Convert errors from the disk, safetensors or JSON inside the block to CheckpointError."""
    try:
        yield
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as cause:
        raise CheckpointError(
            f"cannot read checkpoint {folder} ({type(cause).__name__}: {cause}); resume from an earlier one"
        ) from cause


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Policy:
    module: torch.nn.Module
    optimizer: torch.optim.Optimizer


def _name_models(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, companions: Mapping[str, Trained] | None
) -> dict[str, Trained]:
    return {"policy": _Policy(module=model, optimizer=optimizer), **(companions or {})}


def _read_weights(folder: Path, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint's policy, or of its adapter if `model` has one, by parameter name."""
    if list_adapter(model):
        return read_adapter(folder)
    return read_tensors(folder, where=f"checkpoint {folder}", error=CheckpointError)


def _moments(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the optimizer's state of each parameter as `parameter name/key`, and its loss scale."""
    stepped: dict[str, Any] = {name: find_master(parameter) for name, parameter in module.named_parameters()}
    return {
        f"{name}/{key}": torch.as_tensor(value).contiguous()
        for name, held in (stepped | {SCALE: SCALE}).items()
        for key, value in optimizer.state.get(held, {}).items()
    }


def _below(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _restore(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    moments: Mapping[str, torch.Tensor],
) -> None:
    """Copy weights, their masters and moments into place; see `load_training_state`."""
    masters = {k.removesuffix(f"/{MASTER}"): tensor for k, tensor in moments.items() if k.endswith(f"/{MASTER}")}
    held = {name: find_master(tensor) for name, tensor in tensors.items()}
    _restore_weights(held, weights)
    _restore_weights(held, masters)
    trained = list_trained(module)
    stepped = {name: find_master(parameter) for name, parameter in trained.items()}
    round_masters(trained.values())
    scale = optimizer.state.get(SCALE)  # type: ignore[call-overload]
    optimizer.state.clear()
    if scale is not None:
        optimizer.state[SCALE] = scale | _below(f"{SCALE}/", moments)  # type: ignore[index]
    # Checkpoints written without masters keep the moments in the weights' own format.
    widens = not masters and any(trained[name] is not parameter for name, parameter in stepped.items())
    for name, parameter in stepped.items():
        keys = [k for k in moments if k.rpartition("/")[0] == name and not k.endswith(f"/{MASTER}")]
        if keys:
            optimizer.state[parameter] = {
                k.rpartition("/")[2]: _take_moment(moments[k], parameter, widens=widens) for k in keys
            }


@torch.no_grad()
def _take_moment(moment: torch.Tensor, parameter: torch.Tensor, *, widens: bool) -> torch.Tensor:
    """Move a moment to its parameter's device, and to its format if it `widens`; a step count stays whole on every
    rank."""
    if widens and moment.dtype in SHORT:
        moment = moment.to(parameter.dtype)
    if moment.ndim == 0 or not is_cut(parameter):
        return moment.to(parameter.device)
    taken = torch.zeros_like(parameter.detach())
    own_rows(taken).copy_(cut_rows(moment, parameter))
    return taken


def _check_tensors(
    folder: Path, own: Mapping[str, torch.Tensor], stored: Mapping[str, torch.Tensor], what: str = ""
) -> None:
    """Raise CheckpointError, naming `what` of the checkpoint, unless every tensor of the model is stored under one of
    its names, and nothing else is."""
    wanted: dict[int, list[str]] = {}
    for name, tensor in own.items():
        wanted.setdefault(id(tensor), []).append(name)
    names = [name for group in wanted.values() for name in [each for each in group if each in stored] or group[:1]]
    shapes = {name: tuple(own[name].shape) for name in names}
    stored_shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
    problem = compare_shapes(shapes, stored_shapes, is_adapter=any(map(is_adapter_name, own)))
    if problem is not None:
        raise CheckpointError(f"checkpoint {folder} belongs to a different model: {what}it {problem}")


@torch.no_grad()
def _restore_weights(tensors: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
    for name, stored in weights.items():
        own_rows(tensors[name]).copy_(cut_rows(stored, tensors[name]))
