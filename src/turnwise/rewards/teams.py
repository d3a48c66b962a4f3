"""The reward of one member of a team, from the team's reward and from the reward that the team would have got without
it.

A difference reward (Wolpert and Tumer, arXiv cs/9908014) compares with a world in which the member did nothing;
counterfactual credit (COMA, arXiv 1705.08926) with the member's own average under its policy. COMA gets that average
from a critic; here it is the mean over resampled actions (Monte Carlo), whose expectation is the same, as the team's
other members respond to each resampled action anew.
"""

from __future__ import annotations

from collections.abc import Sequence


def compute_difference_reward(team: float, without: float) -> float:
    """`team - without`: the team's reward minus its reward when the member's message is replaced by a null message."""
    return team - without


def compute_counterfactual_reward(team: float, resampled: Sequence[float]) -> float:
    """`team - mean(resampled)`: the team's reward minus its mean reward with the member's action resampled.

    Its expectation over the action and the resamples is 0. Nothing is subtracted if `resampled` is empty.
    """
    return team - sum(resampled) / len(resampled) if resampled else team
