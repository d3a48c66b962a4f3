"""Targets of a critic, and how well it predicted them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.credit import CreditMethod, CreditTrajectory
from turnwise.core.batch import Column


def compute_returns(
    method: CreditMethod, options: Mapping[str, Any], trajectory: CreditTrajectory
) -> list[NDArray[np.float64]]:
    """Compute the critic's targets, one array per turn; NaN at tokens without a target.

    The returns come from the credit method's own recursion, before any whitening. `options` are all of the method's
    options. Raises ValueError if the method has no targets or its recursion raises it.
    """
    if method.returns is None:
        raise ValueError(
            f"credit method {method.name!r} computes no targets for a critic; use gae, turn_gae or bilevel_gae"
        )
    discounts = {name: value for name, value in options.items() if name not in ("whitening", "epsilon")}
    return method.returns(trajectory, **discounts)


def compute_explained_variance(old_values: Column, returns: Column) -> float:
    """Compute `1 - var(returns - values) / var(returns)` over tokens with a return: 1 for a perfect critic, 0 for a
    constant.

    It is 0 if the returns do not vary.
    """
    targets = np.concatenate(list(returns)).astype(np.float64)
    values = np.concatenate(list(old_values)).astype(np.float64)
    given = np.isfinite(targets)
    spread = float(targets[given].var()) if given.any() else 0.0
    return 1.0 - float((targets[given] - values[given]).var()) / spread if spread > 0 else 0.0
