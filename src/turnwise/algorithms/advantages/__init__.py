"""Advantage estimators: from the rewards of a group, or from a critic, to one number per trajectory, turn or token."""

from turnwise.algorithms.advantages.dynamic_sampling import is_informative
from turnwise.algorithms.advantages.gae import compute_gae, compute_trajectory_gae
from turnwise.algorithms.advantages.gdpo import compute_gdpo_advantages
from turnwise.algorithms.advantages.groups import has_signal
from turnwise.algorithms.advantages.grpo import compute_grpo_advantages
from turnwise.algorithms.advantages.max_rl import compute_max_rl_advantages
from turnwise.algorithms.advantages.opo import compute_opo_advantages
from turnwise.algorithms.advantages.pass_at_k import compute_pass_at_k_advantages
from turnwise.algorithms.advantages.rae import RoleBaselineCredit, compute_rae_advantages
from turnwise.algorithms.advantages.reinforce import compute_discounted_returns, compute_reinforce_advantages
from turnwise.algorithms.advantages.remax import compute_remax_advantages
from turnwise.algorithms.advantages.rloo import compute_rloo_advantages
from turnwise.algorithms.advantages.turn_gae import compute_bilevel_gae, compute_turn_gae
from turnwise.algorithms.advantages.whitening import compute_whitened

__all__ = [
    "RoleBaselineCredit",
    "compute_bilevel_gae",
    "compute_discounted_returns",
    "compute_gae",
    "compute_gdpo_advantages",
    "compute_grpo_advantages",
    "compute_max_rl_advantages",
    "compute_opo_advantages",
    "compute_pass_at_k_advantages",
    "compute_rae_advantages",
    "compute_reinforce_advantages",
    "compute_remax_advantages",
    "compute_rloo_advantages",
    "compute_trajectory_gae",
    "compute_turn_gae",
    "compute_whitened",
    "has_signal",
    "is_informative",
]
