"""Whether an optimizer step changed the weights: one checksum per parameter tensor."""

from __future__ import annotations

import torch

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def compute_checksums(model: torch.nn.Module) -> dict[str, int]:
    """The sum of every trainable parameter's bit patterns, read as integers, modulo 2^64; by name.

    Equal weights have equal sums. Unequal ones that agree are a coincidence of about one in 2^30 per tensor.
    """
    sums = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            bits = parameter.detach().contiguous().view(-1).view(_INTEGERS[parameter.element_size()])
            sums[name] = int(bits.sum(dtype=torch.int64))
    return sums


def count_changed(before: dict[str, int], after: dict[str, int]) -> int:
    """How many tensors have another checksum; a tensor that came or went counts."""
    return sum(before.get(name) != after.get(name) for name in before.keys() | after.keys())
