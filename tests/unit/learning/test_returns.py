"""What a critic learns towards, and how well it predicted that."""

import numpy as np
import pytest

from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.credit_table import CREDIT_METHODS
from turnwise.learning.returns import compute_explained_variance, compute_returns


def attempt(*turns: CreditTurn, reward: float = 1.0) -> CreditTrajectory:
    return CreditTrajectory(group="g", reward=reward, turns=turns)


def test_targets_by_hand() -> None:
    two = attempt(
        CreditTurn(num_tokens=2, values=np.array([0.5, 0.25])), CreditTurn(num_tokens=1, values=np.array([0.75]))
    )
    full = {"gamma": 1.0, "gae_lambda": 1.0, "bootstrap": "zero", "whitening": "full", "epsilon": 1e-8}
    # gamma = lambda = 1: the return of every token is the outcome, at any values of the critic.
    assert [t.tolist() for t in compute_returns(CREDIT_METHODS["gae"], {**full, "kl_coefficient": 0.0}, two)] == [
        [1.0, 1.0],
        [1.0],
    ]
    # lambda = 0: the next value; the last token gets the reward.
    got = compute_returns(CREDIT_METHODS["gae"], {**full, "gae_lambda": 0.0, "kl_coefficient": 0.0}, two)
    assert [t.tolist() for t in got] == [pytest.approx([0.25, 0.75]), [1.0]]
    # One target per turn, at its first token.
    got = compute_returns(CREDIT_METHODS["turn_gae"], {**full, "gae_lambda": 0.0}, two)
    assert [[None if np.isnan(x) else x for x in t.tolist()] for t in got] == [[0.75, None], [1.0]]
    with pytest.raises(ValueError, match="'grpo' computes no targets for a critic"):
        compute_returns(CREDIT_METHODS["grpo"], {}, two)


def test_explained_variance() -> None:
    returns = (np.array([1.0, -1.0, np.nan]),)
    assert compute_explained_variance((np.array([1.0, -1.0, 7.0]),), returns) == 1.0
    assert compute_explained_variance((np.zeros(3),), returns) == 0.0
    assert compute_explained_variance((np.ones(2),), (np.ones(2),)) == 0.0
