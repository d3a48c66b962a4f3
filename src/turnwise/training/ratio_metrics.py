"""Metrics of an update's ratios: how far the policy moved from the weights to which ratios are taken, and on which side
the loss clipped."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from turnwise.algorithms.kl import compute_k3
from turnwise.algorithms.ratios import MAX_LOG_RATIO
from turnwise.core.metrics import Max, Metric, Min

CLIPPED_LOW, CLIPPED_HIGH, KL_OLD = "train/clip_fraction_low", "train/clip_fraction_high", "train/kl_old"
RISEN, FALLEN = "risen", "fallen"
"""Largest log-ratio, and largest negated one: both are maxima, because ranks combine maxima."""
NO_RATIOS = {RISEN: -math.inf, FALLEN: -math.inf}


def measure_ratios(
    policy: torch.Tensor, old: torch.Tensor, clipped: torch.Tensor
) -> tuple[dict[str, float], dict[str, float]]:
    """Return sums over tokens, and the largest log-ratios (see `NO_RATIOS`), of a micro-batch.

    All arguments are `[K]`: the policy's log-probabilities, those to which ratios are taken, and where the loss
    clipped.
    """
    log_ratio = (policy - old).double()
    sums = {
        CLIPPED_LOW: float((clipped & (log_ratio < 0)).sum()),
        CLIPPED_HIGH: float((clipped & (log_ratio > 0)).sum()),
        KL_OLD: float(compute_k3(old, policy).sum()),
    }
    if not len(log_ratio):
        return sums, dict(NO_RATIOS)
    return sums, {RISEN: float(log_ratio.max()), FALLEN: float((-log_ratio).max())}


def describe_extremes(largest: Mapping[str, float]) -> dict[str, Metric]:
    """Return the smallest and the largest ratio of an update; log-ratios are clamped to +-20."""
    risen, fallen = (min(largest[name], MAX_LOG_RATIO) for name in (RISEN, FALLEN))
    return {"train/ratio_min": Min(math.exp(-fallen)), "train/ratio_max": Max(math.exp(risen))}
