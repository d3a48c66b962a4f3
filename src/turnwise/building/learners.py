"""The learner of each algorithm, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from turnwise.building.resolved import Resolved
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Learner
from turnwise.learning.policy_gradient import GradientSettings, PolicyGradientLearner
from turnwise.learning.selection import PreferenceLearner, RejectionLearner


def build_learner(resolved: Resolved) -> Learner:
    """The recipe's learner: one for each policy that learns, as a learner may remember something."""
    return BUILDERS[resolved.algorithm.name](resolved)


def read_gradient_settings(resolved: Resolved) -> GradientSettings:
    """What the recipe says about learning by policy gradients. Raises ConfigError where its algorithm has no credit."""
    config, credit = resolved.config, resolved.credit
    if credit is None:
        raise ConfigError(f"train.algorithm={resolved.algorithm.name!r} does not use a credit method")
    return GradientSettings(
        build_credit=credit.build,
        credit_options=credit.options,
        loss=config.loss,
        shaping=config.credit.shaping,
        has_critic=config.critic.kind != "none",
        recompute_old=resolved.correction.recompute_old,
        train_truncated=config.rollout.train_truncated,
        train_members=config.rollout.train_members,
        seed=config.run.seed,
    )


def _build_policy_gradient(resolved: Resolved) -> Learner:
    return PolicyGradientLearner(read_gradient_settings(resolved))


def _build_rejection(resolved: Resolved) -> Learner:
    config = resolved.config
    return RejectionLearner(
        config.rejection,
        updates_per_pass=config.loss.updates_per_step,
        seed=config.run.seed,
        train_truncated=config.rollout.train_truncated,
    )


def _build_preference(resolved: Resolved) -> Learner:
    return PreferenceLearner(resolved.config.preference, by_step=resolved.algorithm.pairs == "steps")


BUILDERS: Mapping[str, Callable[[Resolved], Learner]] = {
    "policy_gradient": _build_policy_gradient,
    "rejection": _build_rejection,
    "dpo": _build_preference,
    "step_dpo": _build_preference,
}
"""What builds the learners of `ALGORITHMS`, by name."""
