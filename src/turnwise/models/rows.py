"""Tensors of which every rank holds some rows: what a process has of them, in place.

FSDP2 cuts a parameter along its first dimension as `torch.chunk` does; ranks beyond the last chunk hold no row."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch.distributed.tensor import DTensor


def own_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The rows that this process holds, not copied; all of a tensor that no rank shares."""
    return tensor.to_local() if is_cut(tensor) else tensor


def cut_rows(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The rows of `whole` that this process holds of the tensor `like`, which has the same shape; not copied."""
    if not is_cut(like):
        return whole
    mesh: Any = like.device_mesh
    return find_rows(whole, mesh.get_local_rank(), mesh.size())


def find_rows(whole: torch.Tensor, index: int, size: int) -> torch.Tensor:
    """The rows of `whole` that the rank `index` of `size` ranks holds, not copied."""
    chunks = whole.chunk(size)
    return chunks[index] if index < len(chunks) else whole[:0]


def join_rows(tensor: torch.Tensor) -> torch.Tensor:
    """All rows, of all ranks, which all call this; a tensor that no rank shares is returned as it is."""
    return tensor.full_tensor() if is_cut(tensor) else tensor


def is_cut(tensor: torch.Tensor) -> TypeGuard[DTensor]:
    """Whether ranks share the tensor."""
    return isinstance(tensor, DTensor)


def find_device(module: torch.nn.Module) -> torch.device:
    """The device that a module computes on. Rows that ranks hold may be kept elsewhere between steps."""
    first = next(module.parameters())
    return torch.device(first.device_mesh.device_type) if is_cut(first) else first.device


def is_shared(model: torch.nn.Module) -> bool:
    """Whether ranks share the model's parameters."""
    return any(is_cut(parameter) for parameter in model.parameters())
