"""One checksum per parameter tensor: whether a step changed the weights, and whether an engine holds the same ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch

from turnwise.models.lora import is_adapter_name

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
BASE = "base"
"""Stands for all parameters beside an adapter."""


def compute_checksum(tensor: torch.Tensor) -> int:
    """The sum of the bit patterns, read as integers, modulo 2^64.

    Equal tensors have equal sums. Unequal ones that agree are a coincidence of about one in 2^30.
    """
    bits = tensor.detach().contiguous().view(-1).view(_INTEGERS[tensor.element_size()])
    return int(bits.sum(dtype=torch.int64))


def sum_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """`compute_checksum` of each, by name."""
    return {name: compute_checksum(tensor) for name, tensor in tensors.items()}


@torch.no_grad()
def compute_checksums(model: torch.nn.Module, packed: Mapping[str, int] | None = None) -> dict[str, int]:
    """`compute_checksum` of every parameter, by name; tied parameters count once.

    Of a model with an adapter: of every parameter of the adapter, and one number for all others, named `BASE`.
    `packed` are checksums of some parameters as they were when an engine copied them, to use instead of theirs.
    """
    sums = sum_tensors(dict(model.named_parameters()))
    return join_base(sums | dict(packed or {}))


def join_base(sums: Mapping[str, int]) -> dict[str, int]:
    """Checksums of every parameter; where there is an adapter, one number, named `BASE`, for all that are not its."""
    adapter = {name: value for name, value in sums.items() if is_adapter_name(name)}
    if not adapter:
        return dict(sums)
    others = sorted(item for item in sums.items() if item[0] not in adapter)
    digest = hashlib.sha256(json.dumps(others).encode()).digest()
    return adapter | {BASE: int.from_bytes(digest[:8], "big", signed=True)}


def find_difference(mine: Mapping[str, int], theirs: Mapping[str, int]) -> str | None:
    """The first tensor, in the order of `mine`, that one side lacks or whose checksums differ; None if all agree."""
    return next((name for name in [*mine, *theirs] if mine.get(name) != theirs.get(name)), None)


def count_changed(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """How many tensors have another checksum; a tensor that came or went counts."""
    return sum(before.get(name) != after.get(name) for name in before.keys() | after.keys())


def join_sums(by_learner: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Checksums of several learners as one table; those of the first, without a name, keep theirs."""
    return {
        f"{learner}:{name}" if learner else name: value
        for learner, sums in by_learner.items()
        for name, value in sums.items()
    }
