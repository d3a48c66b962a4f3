"""Your own credit method: a function from the trajectories of a step to one array of advantages per turn.

turnwise train recipes/search_r1/tiny.toml credit.method=own_algorithm:leave_one_out
(with this folder on PYTHONPATH).
"""

from collections.abc import Sequence

from turnwise.algorithms.credit import CreditTrajectory, build_outcome_credit, compute_total_reward


def compare(members: Sequence[CreditTrajectory]) -> list[float | None]:
    """RLOO: each reward minus the mean of the others. A group of one gets 0; Invalid members (None) stay out of it.

    Source: Ahmadian et al. 2024, arXiv 2402.14740, equation 8.
    """
    rewards = [compute_total_reward(member) for member in members]
    scored = [r for r in rewards if r is not None]
    if len(scored) < 2:
        return [None if r is None else 0.0 for r in rewards]
    total = sum(scored)
    return [None if r is None else r - (total - r) / (len(scored) - 1) for r in rewards]


leave_one_out = build_outcome_credit(compare)
"""Finds the groups, and assigns every sampled token of a trajectory its advantage."""

if __name__ == "__main__":
    # Winner: 1 - 0 = 1. Losers: 0 - 1/3.
    print(compare([CreditTrajectory(group="task", reward=reward, turns=()) for reward in (1.0, 0.0, 0.0, None, 0.0)]))
