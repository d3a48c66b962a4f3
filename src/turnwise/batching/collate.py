"""Samples to one packed micro-batch of tensors: laid end to end, no padding; the one place of the one-token shift.

Two samples A = [a b c] (c trains) and B = [d e] (e trains):

    token_ids    [a b c d e]
    positions    [0 1 2 0 1]
    lengths      [3, 2]
    predict_at   [1 3]        rows of the model's output: b predicts c, d predicts e
    targets      [c e]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from turnwise.core.types import Sample


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
    behavior_logprobs: torch.Tensor
    """`[K]` float32; NaN where nobody sampled the token (unmasked observations)."""
    advantages: torch.Tensor
    """`[K]` float32."""


def collate(samples: Sequence[Sample], device: torch.device | str = "cpu") -> MicroBatch:
    """Pack samples. Raises ValueError when none is given."""
    if not samples:
        raise ValueError("collate needs at least one sample")
    lengths = [len(s.token_ids) for s in samples]
    mask = np.concatenate([s.loss_mask for s in samples])
    trained = np.flatnonzero(mask)
    ids = np.concatenate([s.token_ids for s in samples]).astype(np.int64)

    def to_tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return MicroBatch(
        token_ids=to_tensor(ids),
        positions=to_tensor(np.concatenate([np.arange(n, dtype=np.int64) for n in lengths])),
        lengths=lengths,
        predict_at=to_tensor(trained - 1),
        targets=to_tensor(ids[trained]),
        behavior_logprobs=to_tensor(np.concatenate([s.behavior_logprobs for s in samples])[trained]),
        advantages=to_tensor(np.concatenate([s.advantages for s in samples])[trained]),
    )
