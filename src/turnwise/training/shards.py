"""Checkpoints that ranks write together, each its own rows, and that one process or any number of ranks can read.

They use torch.distributed.checkpoint with safetensors instead of its own format, which is pickled: a file per rank with
the offsets of its rows, and `counters.json`. Names are `MODEL/weight/PARAMETER` (the float32 master if there is one),
`MODEL/moment/PARAMETER/KEY`, and `MODEL/number/PARAMETER/KEY` for numbers that an optimizer counts; a loss scale is a
parameter of that name. AdamW's step counts may be stored as moments."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from turnwise.core.errors import CheckpointError
from turnwise.models.rows import own_rows
from turnwise.models.tensor_names import compare_shapes
from turnwise.training.loss_scale import SCALE
from turnwise.training.masters import find_master, round_masters
from turnwise.training.optimizer import Trained, list_trained

FOLDER = "ranks"
"""Folder name inside a checkpoint."""
COUNTERS = "counters.json"


def save_shards(folder: Path, models: Mapping[str, Trained], counters: Mapping[str, Any]) -> None:
    """Write this rank's rows of weights and moments; the first rank writes `counters` too. All ranks call it."""
    tensors = {
        f"{model}/{name}": value for model, trained in models.items() for name, value in _list_state(trained).items()
    }
    shards = folder / FOLDER
    shards.mkdir(exist_ok=True)
    # A number as one element: safetensors cannot cut a tensor without a dimension.
    flat = {name: value.view(1) if value.ndim == 0 else value for name, value in tensors.items()}
    save(flat, storage_writer=HuggingFaceStorageWriter(str(shards), save_distributed=True))
    if dist.get_rank() == 0:
        (shards / COUNTERS).write_text(json.dumps(dict(counters)) + "\n", encoding="utf-8")


def read_shard_counters(folder: Path) -> dict[str, Any]:
    """Return the counters of a checkpoint that ranks wrote. Raises OSError or ValueError."""
    return dict(json.loads((folder / FOLDER / COUNTERS).read_text(encoding="utf-8")))


def load_shards(folder: Path, models: Mapping[str, Trained]) -> dict[str, Any]:
    """Restore the rows of weights and moments that this process holds, in place. Returns the counters.

    Raises CheckpointError if a file is missing or broken, or a tensor's name or shape is not this model's; then weights
    and moments are unchanged.
    """
    shards = folder / FOLDER
    try:
        counters = read_shard_counters(folder)
        reader = HuggingFaceStorageReader(str(shards))
        stored = {name: tuple(entry.size) for name, entry in reader.read_metadata().state_dict_metadata.items()}  # type: ignore[union-attr]
        wanted: dict[str, torch.Tensor] = {}
        for model, trained in models.items():
            wanted |= {
                f"{model}/{name}": value for name, value in _list_targets(folder, model, trained, stored).items()
            }
        with warnings.catch_warnings():  # one process needs no process group
            warnings.simplefilter("ignore")
            load(wanted, storage_reader=reader, no_dist=not dist.is_initialized())
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, CheckpointException) as cause:
        raise CheckpointError(
            f"cannot read checkpoint {folder} ({type(cause).__name__}: {cause}); resume from an earlier one"
        ) from cause
    for model, trained in models.items():
        _take(model, trained, wanted)
    return counters


def _list_state(trained: Trained) -> dict[str, torch.Tensor]:
    """Return weights and optimizer state, by name."""
    stepped: dict[str, Any] = _list_stepped(trained)
    weights = {f"weight/{name}": parameter.detach() for name, parameter in stepped.items()}
    return weights | {
        f"{'moment' if value.ndim else 'number'}/{name}/{key}": value
        for name, held in (stepped | {SCALE: SCALE}).items()
        for key, value in trained.optimizer.state.get(held, {}).items()
    }


def _list_stepped(trained: Trained) -> dict[str, torch.nn.Parameter]:
    return {name: find_master(parameter) for name, parameter in list_trained(trained.module).items()}


def _is_number(path: str) -> bool:
    """Return whether a tensor of an optimizer's state, given by its path below the model's name, is a number."""
    return path.startswith("number/") or (path.startswith("moment/") and path.endswith("/step"))


def _list_targets(
    folder: Path, model: str, trained: Trained, stored: Mapping[str, tuple[int, ...]]
) -> dict[str, torch.Tensor]:
    """Return empty tensors for what the checkpoint holds of a model."""
    parameters = _list_stepped(trained)
    of_model = {path.removeprefix(f"{model}/"): shape for path, shape in stored.items() if path.startswith(f"{model}/")}
    problem = compare_shapes(
        {f"weight/{name}": tuple(parameter.shape) for name, parameter in parameters.items()},
        {name: shape for name, shape in of_model.items() if name.startswith("weight/")},
    )
    if problem is not None:
        raise CheckpointError(f"checkpoint {folder} belongs to a different model: {model}: it {problem}")
    targets = {f"weight/{name}": torch.zeros_like(parameter.detach()) for name, parameter in parameters.items()}
    for path, shape in of_model.items():
        if path.startswith("weight/"):
            continue
        name = path.partition("/")[2].rpartition("/")[0]  # between its kind and its key
        if name not in parameters and name != SCALE:
            raise CheckpointError(
                f"checkpoint {folder} contains {model}/{path}, which this run's model lacks; it belongs to a different "
                "model"
            )
        if _is_number(path):
            targets[path] = torch.zeros(1)
            continue
        like = parameters[name].detach()
        targets[path] = torch.zeros_like(like)
        if shape != tuple(like.shape):
            raise CheckpointError(
                f"checkpoint {folder}: {model}/{path} has shape {shape}; it belongs to a different model"
            )
    return targets


@torch.no_grad()
def _take(model: str, trained: Trained, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copy weights into place and hand the moments to the optimizer."""
    stepped: dict[str, Any] = _list_stepped(trained)
    for name, parameter in stepped.items():
        own_rows(parameter).copy_(own_rows(tensors[f"{model}/weight/{name}"]))
    round_masters(list_trained(trained.module).values())
    state: dict[str, dict[str, torch.Tensor]] = {}
    for path, value in tensors.items():
        below = path.removeprefix(f"{model}/")
        kind, _, rest = below.partition("/")
        if path.startswith(f"{model}/") and kind != "weight":
            name, _, key = rest.rpartition("/")
            state.setdefault(name, {})[key] = value.view(()) if _is_number(below) else value
    scale = trained.optimizer.state.get(SCALE)  # type: ignore[call-overload]
    trained.optimizer.state.clear()
    if scale is not None:
        trained.optimizer.state[SCALE] = scale | state.get(SCALE, {})  # type: ignore[index]
    for name, held in state.items():
        if name in stepped:
            trained.optimizer.state[stepped[name]] = held
