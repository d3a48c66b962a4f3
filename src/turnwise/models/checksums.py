"""One checksum per parameter tensor, to tell whether a step changed the weights, and whether an engine has the same
ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch

from turnwise.models.lora import is_adapter_name

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
BASE = "base"
"""Name that stands for all parameters other than an adapter's."""


def compute_checksum(tensor: torch.Tensor) -> int:
    """The sum of the bit patterns, read as integers, modulo 2^64.

    Equal tensors have equal sums. Unequal tensors have equal sums with a probability of about one in 2^30.
    """
    bits = tensor.detach().contiguous().view(-1).view(_INTEGERS[tensor.element_size()])
    return int(bits.sum(dtype=torch.int64))


def sum_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Apply `compute_checksum` to each tensor, by name."""
    return {name: compute_checksum(tensor) for name, tensor in tensors.items()}


@torch.no_grad()
def compute_checksums(model: torch.nn.Module, packed: Mapping[str, int] | None = None) -> dict[str, int]:
    """Compute the checksum of every parameter, by name; tied parameters count once.

    For a model with an adapter: one for every parameter of the adapter, and one number for all others, named `BASE`.
    `packed` are checksums of some parameters from when an engine copied them, used in place of their present ones.
    """
    sums = sum_tensors(dict(model.named_parameters()))
    return join_base(sums | dict(packed or {}))


def join_base(sums: Mapping[str, int]) -> dict[str, int]:
    """Return checksums of every parameter; if there is an adapter, one number, named `BASE`, replaces those of all
    other parameters."""
    adapter = {name: value for name, value in sums.items() if is_adapter_name(name)}
    if not adapter:
        return dict(sums)
    others = sorted(item for item in sums.items() if item[0] not in adapter)
    digest = hashlib.sha256(json.dumps(others).encode()).digest()
    return adapter | {BASE: int.from_bytes(digest[:8], "big", signed=True)}


def find_difference(mine: Mapping[str, int], theirs: Mapping[str, int]) -> str | None:
    """Return the first tensor, in the order of `mine`, that is missing on one side or whose checksums differ; None if
    all agree."""
    return next((name for name in [*mine, *theirs] if mine.get(name) != theirs.get(name)), None)


def count_changed(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Count the tensors whose checksums differ; a tensor that was added or removed counts."""
    return sum(before.get(name) != after.get(name) for name in before.keys() | after.keys())


def join_sums(by_learner: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Combine the checksums of several learners in one table; those of the first, which has no name, keep their
    names."""
    return {
        f"{learner}:{name}" if learner else name: value
        for learner, sums in by_learner.items()
        for name, value in sums.items()
    }
