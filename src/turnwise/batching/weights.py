"""Aggregation weights for a whole optimizer step, split into one array per sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.aggregate import Aggregation, compute_weights
from turnwise.batching.collate import split_column
from turnwise.core.types import Sample, TrajectoryId


def compute_sample_weights(
    samples: Sequence[Sample],
    aggregation: Aggregation,
    *,
    kept: NDArray[np.bool_] | None = None,
    rejected: Literal["in", "out"] = "in",
    constant: float | None = None,
) -> list[NDArray[np.generic]]:
    """Apply `aggregate.compute_weights` to the trained tokens of all samples in an optimizer step.

    A sequence is a sample (a branch), a prompt is a draw of one role (a group). `kept [K]` covers the trained tokens of
    all samples. Raises ValueError as `compute_weights` does."""
    counts = [int(s.loss_mask.sum()) for s in samples]
    names = [s.origin.trajectory for s in samples]
    groups: dict[tuple[int, str], int] = {}
    trajectories: dict[TrajectoryId, int] = {}
    weights = compute_weights(
        aggregation,
        sequence_of_token=np.repeat(np.arange(len(samples)), counts),
        prompt_of_sequence=np.array(
            [groups.setdefault((name.draw, name.role), len(groups)) for name in names], dtype=np.int64
        ),
        trajectory_of_sequence=np.array(
            [trajectories.setdefault(name, len(trajectories)) for name in names], dtype=np.int64
        ),
        kept=kept,
        rejected=rejected,
        constant=constant,
    )
    return split_column(weights, samples)
