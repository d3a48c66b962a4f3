"""Divergence estimators by exact enumeration over six tokens; adaptive coefficients by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.entropy import compute_entropy_loss, update_entropy_coefficient
from turnwise.algorithms.kl import KLKind, compute_kl, compute_kl_rewards, update_kl_coefficient

torch.set_num_threads(1)
LOGITS = torch.tensor([0.3, -1.2, 0.8, 0.1, -0.4, 1.1], dtype=torch.float64)
REFERENCE = torch.tensor([0.5, -0.2, 0.2, -0.9, 0.6, 0.4], dtype=torch.float64).log_softmax(0)
OLD = torch.tensor([0.1, -1.0, 0.2, 0.6, -0.4, 0.7], dtype=torch.float64).log_softmax(0)


def expected(kind: KLKind, sampler: torch.Tensor | None = None) -> tuple[float, torch.Tensor]:
    """Value and gradient in the logits, averaged over tokens drawn from `sampler` (None: the policy itself)."""
    logits = LOGITS.clone().requires_grad_()
    policy = logits.log_softmax(0)
    drawn_from = policy.detach() if sampler is None else sampler
    value = (drawn_from.exp() * compute_kl(kind, policy, REFERENCE, old_logprobs=drawn_from)).sum()
    (gradient,) = torch.autograd.grad(value, logits)
    return float(value.detach()), gradient


def exact(*, forward: bool) -> tuple[float, torch.Tensor]:
    logits = LOGITS.clone().requires_grad_()
    policy = logits.log_softmax(0)
    value = (REFERENCE.exp() * (REFERENCE - policy)).sum() if forward else (policy.exp() * (policy - REFERENCE)).sum()
    (gradient,) = torch.autograd.grad(value, logits)
    return float(value.detach()), gradient


def test_values_are_unbiased_except_k2() -> None:
    divergence, _ = exact(forward=False)
    kinds: list[KLKind] = ["k1", "k3", "k3_weighted", "k3_with_k2_gradient"]
    for kind in kinds:
        assert expected(kind)[0] == pytest.approx(divergence, rel=1e-12)
    assert expected("k2")[0] != pytest.approx(divergence, rel=1e-3)


def test_gradients_point_where_the_table_says() -> None:
    _, reverse = exact(forward=False)
    _, forward = exact(forward=True)
    torch.testing.assert_close(expected("k1")[1], torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-12)
    for kind, target in (("k2", reverse), ("k3", forward), ("k3_weighted", reverse), ("k3_with_k2_gradient", reverse)):
        torch.testing.assert_close(expected(kind)[1], target, rtol=1e-12, atol=1e-12)  # type: ignore[arg-type]
    assert not torch.allclose(forward, reverse, atol=1e-3)


def test_weighted_k3_stays_unbiased_when_an_older_policy_sampled() -> None:
    divergence, reverse = exact(forward=False)
    value, gradient = expected("k3_weighted", OLD)
    assert value == pytest.approx(divergence, rel=1e-12)
    torch.testing.assert_close(gradient, reverse, rtol=1e-12, atol=1e-12)
    assert expected("k3", OLD)[0] != pytest.approx(divergence, rel=1e-3)


@given(policy=st.floats(-20, 0), reference=st.floats(-20, 0))
def test_k2_and_k3_are_never_negative_and_zero_only_when_equal(policy: float, reference: float) -> None:
    a, b = torch.tensor([policy], dtype=torch.float64), torch.tensor([reference], dtype=torch.float64)
    for kind in ("k2", "k3"):
        value = float(compute_kl(kind, a, b))  # type: ignore[arg-type]
        assert value >= 0
        if policy == reference:
            assert value == 0
        elif abs(policy - reference) > 1e-3:
            assert value > 0


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "k3_weighted", "k3_with_k2_gradient"])
@pytest.mark.parametrize("gap", [-1e3, 1e3])
def test_extreme_gaps_stay_finite(kind: KLKind, gap: float) -> None:
    policy = torch.tensor([gap], requires_grad=True)
    value = compute_kl(kind, policy, torch.zeros(1), old_logprobs=torch.zeros(1))
    value.sum().backward()
    assert policy.grad is not None
    assert torch.isfinite(value).all()
    assert torch.isfinite(policy.grad).all()


def test_wrong_kinds_are_refused() -> None:
    zero = torch.zeros(1)
    with pytest.raises(ValueError, match="known: k1"):
        compute_kl("k4", zero, zero)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs old_logprobs"):
        compute_kl("k3_weighted", zero, zero)


def test_kl_in_the_reward_by_hand_and_without_a_reference() -> None:
    # -0.1 * (-1 - -2) and -0.1 * (-3 - -1).
    rewards = compute_kl_rewards(np.array([-1.0, -3.0]), np.array([-2.0, -1.0]), coefficient=0.1)
    assert rewards.tolist() == pytest.approx([-0.1, 0.2])
    with pytest.raises(ValueError, match="not finite"):
        compute_kl_rewards(np.array([-1.0]), np.array([np.nan]), coefficient=0.1)
    with pytest.raises(ValueError, match="shape"):
        compute_kl_rewards(np.array([-1.0]), np.zeros(0), coefficient=0.1)


def test_adaptive_kl_by_hand() -> None:
    # Twice the target clips to +0.2: 0.1 (1 + 0.2 * 100 / 1000) = 0.102; 5% below: 0.1 (1 - 0.05 * 0.1) = 0.0995.
    assert update_kl_coefficient(0.1, 0.2, target=0.1, horizon=1000, num_samples=100) == pytest.approx(0.102)
    assert update_kl_coefficient(0.1, 0.095, target=0.1, horizon=1000, num_samples=100) == pytest.approx(0.0995)
    with pytest.raises(ValueError, match="finite"):
        update_kl_coefficient(0.1, math.nan, target=0.1, horizon=1000, num_samples=100)


def test_entropy_bonus_and_its_coefficient() -> None:
    assert compute_entropy_loss(torch.tensor([2.0, 0.0]), coefficient=0.5).tolist() == [-1.0, 0.0]
    moves = {0.1: 0.015, 0.2: 0.005, 0.5: 0.005}  # below the target 0.2 it grows, at or above it shrinks
    for measured, after in moves.items():
        assert update_entropy_coefficient(0.01, measured, target=0.2, step=0.005, max_coefficient=1.0) == pytest.approx(
            after
        )
    assert update_entropy_coefficient(0.0, 1.0, target=0.2, step=0.005, max_coefficient=1.0) == 0.0
    assert update_entropy_coefficient(1.0, 0.0, target=0.2, step=0.005, max_coefficient=1.0) == 1.0
    with pytest.raises(ValueError, match="the coefficient needs a finite value"):
        update_entropy_coefficient(0.0, math.nan, target=0.2, step=0.005, max_coefficient=1.0)
