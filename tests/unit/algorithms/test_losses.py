"""The clipped loss, the divergence estimate and the aggregation, by hand and by finite enumeration."""

import math

import pytest
import torch

from turnwise.algorithms.aggregate import compute_token_mean
from turnwise.algorithms.kl import compute_k3
from turnwise.algorithms.losses import compute_ppo_clip_loss
from turnwise.algorithms.losses.inputs import LossInputs


def log(*values: float) -> torch.Tensor:
    return torch.tensor([math.log(v) for v in values], dtype=torch.float64)


def test_clip_by_hand() -> None:
    # behaviour probability 0.5 everywhere; policies 0.5 0.9 0.1 0.9 0.1 give ratios 1 1.8 0.2 1.8 0.2; clip to [0.8,
    # 1.2].
    policy, behavior = log(0.5, 0.9, 0.1, 0.9, 0.1), log(0.5, 0.5, 0.5, 0.5, 0.5)
    advantages = torch.tensor([2.0, 1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    losses, clipped = compute_ppo_clip_loss(policy, behavior, advantages, clip_low=0.2, clip_high=0.2)
    # A=2: -2. A=1 ratio 1.8: max(-1.8, -1.2) = -1.2. A=1 ratio 0.2: max(-0.2, -0.8) = -0.2.
    # A=-1 ratio 1.8: max(1.8, 1.2) = 1.8. A=-1 ratio 0.2: max(0.2, 0.8) = 0.8.
    assert losses.tolist() == pytest.approx([-2.0, -1.2, -0.2, 1.8, 0.8])
    assert clipped.tolist() == [False, True, False, False, True]


def test_gradient_vanishes_exactly_where_clipped_and_is_the_policy_gradient_on_policy() -> None:
    policy = log(0.5, 0.9, 0.1).requires_grad_()
    behavior = log(0.5, 0.5, 0.5)
    losses, _ = compute_ppo_clip_loss(
        policy, behavior, torch.tensor([2.0, 1.0, -1.0], dtype=torch.float64), clip_low=0.2, clip_high=0.2
    )
    losses.sum().backward()
    # On policy the gradient of -ratio A with respect to the log-probability is -A.
    assert policy.grad is not None
    assert policy.grad.tolist() == [-2.0, 0.0, 0.0]


@pytest.mark.parametrize("gap", [1e3, -1e3])
def test_extreme_ratios_stay_finite(gap: float) -> None:
    policy = torch.tensor([gap], requires_grad=True)
    losses, _ = compute_ppo_clip_loss(policy, torch.zeros(1), torch.tensor([-1.0]), clip_low=0.2, clip_high=0.2)
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert policy.grad is not None
    assert torch.isfinite(policy.grad).all()


def test_k3_is_zero_only_when_equal_and_unbiased() -> None:
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    reference = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    k3 = compute_k3(policy.log(), reference.log())
    assert k3[1] == 0
    assert (k3 >= 0).all()
    assert k3[0] > 0
    # Expected over the policy it is the divergence: 0.5 ln(5/2) + 0 + 0.2 ln(2/5) = 0.3 ln 2.5.
    assert float((policy * k3).sum()) == pytest.approx(0.3 * math.log(2.5))


def test_token_mean_takes_the_denominator_it_is_given() -> None:
    losses = torch.tensor([1.0, 2.0, 3.0])
    assert float(compute_token_mean(losses, 6.0)) == 1.0
    halves = compute_token_mean(losses[:1], 6.0) + compute_token_mean(losses[1:], 6.0)
    assert float(halves) == 1.0
    assert float(compute_token_mean(torch.zeros(0), 6.0)) == 0.0
    with pytest.raises(ValueError, match="denominator"):
        compute_token_mean(losses, 0.0)


@pytest.mark.parametrize("short", [torch.float16, torch.bfloat16])
def test_short_formats_are_refused_because_ratios_do_not_fit(short: torch.dtype) -> None:
    # exp(20) = 4.9e8 is above float16's largest number, 65,504; bfloat16 keeps 8 bits, so that -8.02 is -8.
    number, sequence = torch.zeros(1), torch.zeros(1, dtype=torch.long)
    fields = dict.fromkeys(("policy_logprobs", "old_logprobs", "behavior_logprobs", "advantages"), number)
    for name in fields:
        with pytest.raises(ValueError, match=rf"{name} has dtype {short}.*pass float32"):
            LossInputs(**{**fields, name: number.to(short)}, sequence=sequence)
