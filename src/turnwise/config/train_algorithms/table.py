"""The table of algorithms."""

from __future__ import annotations

from turnwise.config.train_algorithms.algorithm import Algorithm
from turnwise.config.train_algorithms.dpo import DPO
from turnwise.config.train_algorithms.policy_gradient import POLICY_GRADIENT
from turnwise.config.train_algorithms.rejection import REJECTION
from turnwise.config.train_algorithms.step_dpo import STEP_DPO

ALGORITHMS: dict[str, Algorithm] = {row.name: row for row in (POLICY_GRADIENT, REJECTION, DPO, STEP_DPO)}
"""Every algorithm by name: what `train.algorithm` may be."""


def find_algorithm(name: str) -> Algorithm:
    """The row of `train.algorithm`, whose values the recipe has checked."""
    return ALGORITHMS[name]
