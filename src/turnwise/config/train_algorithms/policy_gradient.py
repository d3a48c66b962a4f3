"""Reinforcement learning with credit and a policy loss."""

from turnwise.config.train_algorithms.algorithm import Algorithm

POLICY_GRADIENT = Algorithm(
    name="policy_gradient",
    has_credit=True,
    count_passes=lambda loss, rejection: loss.epochs,
    passes_option="loss.epochs",
)
