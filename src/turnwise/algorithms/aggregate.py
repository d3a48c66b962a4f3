"""Reduces per-token losses to one number: `sum(weights * losses)` with weights computed once per optimizer step.

Denominators count tokens, sequences, prompts or trajectories of the *whole* step. Micro-batches and ranks only sum, so
how the step was split cannot matter. A framework that averages gradients over D ranks multiplies the loss by D.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

Aggregation = Literal["token_mean", "sequence_mean", "sequence_sum", "prompt_mean", "trajectory_mean", "constant"]
AGGREGATIONS: dict[str, str] = {
    "token_mean": "1 / N: every token counts alike (DAPO).",
    "sequence_mean": "1 / (S L): mean over sequences of their token means (GRPO).",
    "sequence_sum": "1 / S: mean over sequences of their token sums.",
    "prompt_mean": "1 / (P N_p): mean over prompts of the token mean over all sequences of a prompt.",
    "trajectory_mean": (
        "1 / (T N_t): mean over trajectories of the token mean over all their sequences (branches, rows)."
    ),
    "constant": "1 / (S C): mean over sequences of their token sums divided by a constant C (Dr.GRPO).",
}
"""Weight per token. N, L, N_p, N_t: tokens in the step, sequence, prompt, trajectory; S, P, T: those with at least one.
"""


def compute_weights(
    mode: Aggregation,
    *,
    sequence_of_token: NDArray[np.integer],
    prompt_of_sequence: NDArray[np.integer] | None = None,
    trajectory_of_sequence: NDArray[np.integer] | None = None,
    kept: NDArray[np.bool_] | None = None,
    rejected: Literal["in", "out"] = "in",
    constant: float | None = None,
) -> NDArray[np.float64]:
    """Compute one weight per trained token of the step, `[K]` float64.

    The loss is `sum(weights * losses)` over any split.

    Args:
        mode: see `AGGREGATIONS`.
        sequence_of_token: `[K]`, 0-based.
        prompt_of_sequence: `[S]`, any integers; needed by "prompt_mean".
        trajectory_of_sequence: `[S]`, any integers; needed by "trajectory_mean".
        kept: `[K]`; False where a correction rejected the token: its weight is 0. None keeps all.
        rejected: whether rejected tokens count in the denominators. "in" leaves the step's scale unchanged, so
            rejection shrinks the gradient; "out" renormalises, so the kept tokens are scaled up by N / N_kept.
        constant: the divisor C of "constant" (the longest possible sequence, in tokens).

    Sequences, prompts and trajectories without a counted token do not count. If no token is counted, all weights are 0,
    and so is the loss.

    Raises:
        ValueError: unknown mode, a needed argument is missing, lengths differ, or the constant is not positive.
    """
    if mode not in AGGREGATIONS:
        raise ValueError(f"aggregation {mode!r} is unknown; known: {', '.join(AGGREGATIONS)}")
    sequence = np.asarray(sequence_of_token, dtype=np.int64)
    keep = np.ones(len(sequence), dtype=np.bool_) if kept is None else np.asarray(kept, dtype=np.bool_)
    if keep.shape != sequence.shape:
        raise ValueError(
            f"kept has shape {keep.shape}, sequence_of_token {sequence.shape}; both must have one entry per token of "
            "the step"
        )
    counted = np.ones_like(keep) if rejected == "in" else keep
    divisor = 1.0
    if mode == "token_mean":
        unit = np.zeros_like(sequence)
    elif mode == "prompt_mean":
        unit = _units(mode, "prompt_of_sequence", prompt_of_sequence, sequence)
    elif mode == "trajectory_mean":
        unit = _units(mode, "trajectory_of_sequence", trajectory_of_sequence, sequence)
    else:
        unit = sequence
    if mode == "constant":
        if constant is None or not constant > 0:
            raise ValueError(
                f"aggregation 'constant' divides by a fixed number of tokens, which is {constant}; it must be positive"
            )
        divisor = constant
    sizes = np.bincount(unit, weights=counted.astype(np.float64), minlength=1)
    num_units = float(np.count_nonzero(sizes))
    if num_units == 0:
        return np.zeros(len(sequence))
    per_token = divisor if mode in ("sequence_sum", "constant") else np.maximum(sizes[unit], 1.0)
    return np.asarray(keep / (num_units * per_token), dtype=np.float64)


def _units(
    mode: str, name: str, of_sequence: NDArray[np.integer] | None, sequence: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Return the 0-based index of each token's prompt or trajectory."""
    if of_sequence is None:
        raise ValueError(f"aggregation {mode!r} needs {name}, the group of each sequence")
    keys = np.asarray(of_sequence)
    if len(sequence) and int(sequence.max()) >= len(keys):
        raise ValueError(
            f"{name} has {len(keys)} entries, but a token belongs to sequence {int(sequence.max())}; pass one entry "
            "per sequence"
        )
    return np.unique(keys[sequence], return_inverse=True)[1]


def compute_token_mean(losses: torch.Tensor, denominator: float) -> torch.Tensor:
    """`sum(losses) / denominator`, where `denominator` counts the trained tokens of the *whole* optimizer step.

    Summed over micro-batches this is the mean over all tokens, however the tokens were split (DAPO's token-level loss).
    An empty `losses` gives 0. Raises ValueError when the denominator is not positive.
    """
    if denominator <= 0:
        raise ValueError(
            f"denominator is {denominator}; it must be the number of trained tokens in the optimizer step, above 0"
        )
    return losses.sum() / denominator
