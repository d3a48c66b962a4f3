"""Tensors whose rows are distributed over ranks: access to a process's own rows, in place.

FSDP2 splits a parameter along its first dimension as `torch.chunk` does; ranks beyond the last chunk have no rows."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch.distributed.tensor import DTensor


def own_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return the rows that this process holds, not copied; all of a tensor that is not distributed."""
    return tensor.to_local() if is_cut(tensor) else tensor


def cut_rows(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the rows of `whole` that this process holds of the tensor `like`, which has the same shape; not copied."""
    if not is_cut(like):
        return whole
    mesh: Any = like.device_mesh
    return find_rows(whole, mesh.get_local_rank(), mesh.size())


def find_rows(whole: torch.Tensor, index: int, size: int) -> torch.Tensor:
    """Return the rows of `whole` that rank `index` of `size` ranks holds, not copied."""
    chunks = whole.chunk(size)
    return chunks[index] if index < len(chunks) else whole[:0]


def join_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Gather all rows from all ranks, which must all call this; a tensor that is not distributed is returned
    unchanged."""
    return tensor.full_tensor() if is_cut(tensor) else tensor


def is_cut(tensor: torch.Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is distributed over ranks."""
    return isinstance(tensor, DTensor)


def find_device(module: torch.nn.Module) -> torch.device:
    """Return the device that a module computes on. A rank's rows may be kept elsewhere between steps."""
    first = next(module.parameters())
    return torch.device(first.device_mesh.device_type) if is_cut(first) else first.device


def is_shared(model: torch.nn.Module) -> bool:
    """Whether the model's parameters are distributed over ranks."""
    return any(is_cut(parameter) for parameter in model.parameters())
