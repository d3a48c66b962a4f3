"""Advantage estimators: from the rewards of a group to one number per trajectory."""

from turnwise.algorithms.advantages.grpo import compute_grpo_advantages, has_signal

__all__ = ["compute_grpo_advantages", "has_signal"]
