"""Reads the tensors in an adapter's file, and rejects those that are useless although names and shapes fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file

from turnwise.core.errors import ConfigError, boundary
from turnwise.models.weight_files import is_git_lfs_pointer, list_names

_BASE = ".base_layer.weight"


def read_tensors(file: Path, where: str) -> dict[str, torch.Tensor]:
    """Read the tensors in an adapter's file.

    Raises ConfigError, in a message that begins with `where`, for a file that is not one, tensors without numbers (a
    trainer that shards weights wrote its own shard), number formats that adapters do not use, NaN and infinity.
    """
    if is_git_lfs_pointer(file):
        raise ConfigError(f"{where}: {file.name} is a Git LFS pointer without weights; run `git lfs pull` there")
    with boundary(ConfigError, f"{where} cannot be read"):
        stored: dict[str, torch.Tensor] = load_file(file)
    if not stored or all(not tensor.numel() for tensor in stored.values()):
        raise ConfigError(
            f"{where} contains no numbers: {file.name} has "
            f"{f'{len(stored)} empty tensors' if stored else 'no tensor'}, which happens when sharded weights are "
            "saved (DeepSpeed ZeRO-3); gather the weights and save the adapter again"
        )
    whole = [f"{name} ({tensor.dtype})" for name, tensor in stored.items() if not tensor.is_floating_point()]
    if whole:
        raise ConfigError(f"{where} contains integers ({list_names(whole)}); save it in float32 or bfloat16")
    broken = [name for name, tensor in stored.items() if not torch.isfinite(tensor).all()]
    if broken:
        raise ConfigError(
            f"{where} contains NaN or infinity in {list_names(broken)}: its training failed; use an earlier one"
        )
    return stored


def leave_out_base(
    stored: Mapping[str, torch.Tensor], base: Mapping[str, torch.Tensor], where: str
) -> dict[str, torch.Tensor]:
    """Return the tensors without the base's own weights, which peft writes along with an adapter for the output layer.

    `base` has the model's weights by their names in `lora.list_base`, with the prefix of the file. Raises ConfigError
    for weights that differ from the model's: they were trained or resized, and belong to another model.
    """
    kept = {}
    for name, tensor in stored.items():
        own = base.get(name.replace(".base_layer.", ".")) if name.endswith(_BASE) else None
        if own is None:
            kept[name] = tensor
        elif own.shape != tensor.shape or not torch.equal(own.cpu(), tensor.to(own.dtype)):
            raise ConfigError(
                f"{where} contains its own weights for {name}, which differ from those of model.path; merge it with "
                "peft (`merge_and_unload()`, then save_pretrained) and set model.path to the result"
            )
    return kept
