"""Samples to one packed micro-batch of tensors: laid end to end, no padding; the one place of the one-token shift.

Two samples A = [a b c] (c trains) and B = [d e] (e trains):

    token_ids    [a b c d e]
    positions    [0 1 2 0 1]
    lengths      [3, 2]
    predict_at   [1 3]        rows of the model's output: b predicts c, d predicts e
    targets      [c e]
    sequence     [0 1]

What a training step knows of its trained tokens besides (weights, old log-probabilities, returns of a critic) comes as named
columns, computed once over the whole step and cut here like everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.core.types import Sample

Column = Sequence[NDArray[np.generic]]
"""One array per sample, `[K_i]` over its trained tokens."""
Columns = Mapping[str, Column]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatch:
    """What one forward and backward pass reads. T tokens, K of them trained."""

    token_ids: torch.Tensor
    """`[T]` int64."""
    positions: torch.Tensor
    """`[T]` int64, from 0 in each sample."""
    lengths: list[int]
    """Tokens per sample; sums to T."""
    predict_at: torch.Tensor
    """`[K]` int64, index of the token whose output predicts the trained one."""
    targets: torch.Tensor
    """`[K]` int64, the trained tokens."""
    sequence: torch.Tensor
    """`[K]` int64, index of the sample in this micro-batch."""
    behavior_logprobs: torch.Tensor
    """`[K]` float32; NaN where nobody sampled the token (unmasked observations)."""
    advantages: torch.Tensor
    """`[K]` float32."""
    columns: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """`[K]` each, by name; numbers are float32."""


def collate(samples: Sequence[Sample], device: torch.device | str = "cpu", columns: Columns | None = None) -> MicroBatch:
    """Pack samples and the columns of theirs. Raises ValueError when no sample is given or a column does not fit."""
    if not samples:
        raise ValueError("collate needs at least one sample")
    lengths = [len(s.token_ids) for s in samples]
    mask = np.concatenate([s.loss_mask for s in samples])
    trained = np.flatnonzero(mask)
    ids = np.concatenate([s.token_ids for s in samples]).astype(np.int64)

    def to_tensor(array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    packed = {}
    for name, arrays in (columns or {}).items():
        joined = np.concatenate(arrays)
        if joined.shape != trained.shape:
            raise ValueError(f"column {name!r} has {len(joined)} numbers for {len(trained)} trained tokens")
        packed[name] = to_tensor(joined.astype(np.float32) if np.issubdtype(joined.dtype, np.floating) else joined)
    return MicroBatch(
        token_ids=to_tensor(ids),
        positions=to_tensor(np.concatenate([np.arange(n, dtype=np.int64) for n in lengths])),
        lengths=lengths,
        predict_at=to_tensor(trained - 1),
        targets=to_tensor(ids[trained]),
        sequence=to_tensor(np.repeat(np.arange(len(samples)), lengths)[trained]),
        behavior_logprobs=to_tensor(np.concatenate([s.behavior_logprobs for s in samples])[trained]),
        advantages=to_tensor(np.concatenate([s.advantages for s in samples])[trained]),
        columns=packed,
    )


def split_column(values: NDArray[np.generic], samples: Sequence[Sample]) -> list[NDArray[np.generic]]:
    """One array over all trained tokens of the samples, `[K]`, cut into a column. Raises ValueError when the length is another."""
    counts = [int(s.loss_mask.sum()) for s in samples]
    if len(values) != sum(counts):
        raise ValueError(f"{len(values)} numbers for {sum(counts)} trained tokens")
    return list(np.split(values, np.cumsum(counts)[:-1])) if counts else []
