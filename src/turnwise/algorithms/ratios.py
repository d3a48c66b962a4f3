"""Probability ratios and per-sequence reductions on packed tokens, safe at any log-ratio.

All functions take K packed trained tokens: prompt, observation and padding tokens never appear, so they cannot be
counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


MAX_LOG_RATIO = 20.0
"""exp(20) is 5e8: larger log-ratios are clamped *before* exp, so that values and gradients stay finite in float32."""


def refuse_short_format(values: torch.Tensor, name: str) -> None:
    """Raise ValueError for float16, in which exp(20) is infinite, and for bfloat16, which rounds -8.02 to -8."""
    if values.is_floating_point() and values.element_size() < 4:
        raise ValueError(
            f"{name} has dtype {values.dtype}, in which ratios overflow or lose precision; pass float32, such as "
            "`logits.float().log_softmax(-1)`"
        )


def compute_ratio(log_ratio: torch.Tensor) -> torch.Tensor:
    """`exp(log_ratio)`, any shape, with the log-ratio clamped to +-`MAX_LOG_RATIO`; outside, the gradient is exactly
    0."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sum_over_sequence(values: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
    """`[K]`: for every token the sum of `values [K]` over its sequence (`sequence [K]`, 0-based, any order)."""
    if not len(values):
        return values
    sums = values.new_zeros(int(sequence.max()) + 1)
    return sums.index_add(0, sequence, values)[sequence]


def mean_over_sequence(values: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
    """`[K]`: every token gets the mean of `values [K]` over the tokens of its own sequence."""
    return sum_over_sequence(values, sequence) / sum_over_sequence(values.new_ones(values.shape), sequence)
