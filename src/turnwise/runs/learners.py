"""The recipe's way to learn from groups."""

from __future__ import annotations

from turnwise.config.run import RunConfig
from turnwise.core.protocols import Learner
from turnwise.learning.policy_gradient import PolicyGradientLearner
from turnwise.learning.selection import PreferenceLearner, RejectionLearner
from turnwise.runs.methods import resolve_correction


def build_learner(config: RunConfig) -> Learner:
    """The learner of `train.algorithm`. Raises ConfigError when credit and critic, or loss and staleness, do not
    fit."""
    algorithm = config.train.algorithm
    if algorithm == "rejection":
        return RejectionLearner(config)
    if algorithm in ("dpo", "step_dpo"):
        return PreferenceLearner(config)
    return PolicyGradientLearner(config, recompute_old=resolve_correction(config).recompute_old)
