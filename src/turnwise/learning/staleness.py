"""Measures how old the tokens of a step are: versions between the weights that sampled them and those trained."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from turnwise.core.metrics import Max, Mean, Metric
from turnwise.core.types import Sample


def compute_ages(samples: Iterable[Sample], version: int) -> NDArray[np.int64]:
    """Return `[K]` ages of the trained tokens of all samples: `version` minus the version that sampled the token.

    Observation tokens that train in an ablation were not sampled and are left out.
    """
    ages = [np.zeros(0, np.int64)]
    for sample in samples:
        sampled = sample.loss_mask & ~np.isnan(sample.behavior_logprobs)
        if sample.versions is None:
            ages.append(np.full(int(sampled.sum()), version - sample.version_first, np.int64))
        else:
            ages.append(version - sample.versions[sampled].astype(np.int64))
    return np.concatenate(ages)


def compute_staleness_metrics(samples: Iterable[Sample], version: int) -> dict[str, Metric]:
    """Return mean and largest age of trained tokens, and the share of each age that occurs, as `train/age_2_share`.

    `version` is that of the weights the step trains. Empty if no token trains.
    """
    ages = compute_ages(samples, version)
    if not len(ages):
        return {}
    count = float(len(ages))
    values, counts = np.unique(ages, return_counts=True)
    shares: dict[str, Metric] = {
        f"train/age_{age}_share": Mean(float(number), count)
        for age, number in zip(values.tolist(), counts.tolist(), strict=True)
    }
    return shares | {
        "train/staleness_mean": Mean(float(ages.sum()), count),
        "train/staleness_max": Max(float(values[-1])),
    }
