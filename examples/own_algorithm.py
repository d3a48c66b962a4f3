"""Your own advantage estimator: a function from the rewards of one group to one number per member.

turnwise train recipes/search_r1/tiny.toml credit.estimator=own_algorithm:leave_one_out
(with this folder on PYTHONPATH).
"""

from collections.abc import Sequence


def leave_one_out(rewards: Sequence[float | None]) -> list[float | None]:
    """RLOO: each reward minus the mean of the others. A group of one gets 0; Invalid members (None) stay out of it.

    Source: Ahmadian et al. 2024, arXiv 2402.14740, equation 8.
    """
    scored = [r for r in rewards if r is not None]
    if len(scored) < 2:
        return [None if r is None else 0.0 for r in rewards]
    total = sum(scored)
    return [None if r is None else r - (total - r) / (len(scored) - 1) for r in rewards]


if __name__ == "__main__":
    # Winner: 1 - 0 = 1. Losers: 0 - 1/3.
    print(leave_one_out([1.0, 0.0, 0.0, None, 0.0]))
