"""Per-token estimators of KL(policy || reference) from sampled tokens, and where to apply them.

With `r = log policy - log reference` at a sampled token (Schulman, "Approximating KL Divergence"):

    kind                  value           expected value   expected gradient when the policy itself sampled
    k1                    r               KL               0 (useless as a loss, right as a reward)
    k2                    r^2 / 2         about KL         that of KL(policy || reference)
    k3                    exp(-r) + r - 1 KL, >= 0         that of KL(reference || policy): the other direction
    k3_weighted           ratio * k3      KL               that of KL(policy || reference), whichever policy sampled
    k3_with_k2_gradient   k3              KL, >= 0         that of KL(policy || reference)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.ratios import MAX_LOG_RATIO, compute_ratio, refuse_short_format

if TYPE_CHECKING:
    import torch

KLKind = Literal["k1", "k2", "k3", "k3_weighted", "k3_with_k2_gradient"]


def compute_k1(policy_logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    """`r = policy - reference`, `[K]`: unbiased, may be negative. As a loss its expected gradient is 0 on policy."""
    return policy_logprobs - reference_logprobs


def compute_k2(policy_logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    """`r^2 / 2`, `[K]`: biased in value, and as a loss its expected gradient is that of KL(policy || reference)."""
    return (policy_logprobs - reference_logprobs).square() / 2


def compute_k3(policy_logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    """k3 = exp(-r) + r - 1 with `r = policy - reference`, `[K]` each.

    An unbiased, non-negative estimate of KL(policy || reference). Tokens must be drawn from the policy. As a loss its
    gradient is that of KL(reference || policy), as in GRPO (equation 4 of arXiv 2402.03300). `r` is clamped to +-20
    before exp.
    """
    log_ratio = (policy_logprobs - reference_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (-log_ratio).expm1() + log_ratio


def compute_kl(
    kind: KLKind,
    policy_logprobs: torch.Tensor,
    reference_logprobs: torch.Tensor,
    *,
    old_logprobs: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the estimate of one kind, `[K]`, as a loss term to be multiplied by its coefficient.

    `k3_weighted` is k3 times `policy / old` with the gradient through both (DeepSeek-V3.2, arXiv 2512.02556, section
    3.1), for tokens that `old_logprobs [K]` sampled; on policy it changes no value but does change the gradient. Other
    kinds ignore `old_logprobs`.

    Raises:
        ValueError: unknown kind, "k3_weighted" without `old_logprobs`, or log-probabilities in float16 or bfloat16.
    """
    refuse_short_format(policy_logprobs, "policy_logprobs")
    refuse_short_format(reference_logprobs, "reference_logprobs")
    if kind == "k1":
        return compute_k1(policy_logprobs, reference_logprobs)
    if kind == "k2":
        return compute_k2(policy_logprobs, reference_logprobs)
    if kind == "k3":
        return compute_k3(policy_logprobs, reference_logprobs)
    if kind == "k3_with_k2_gradient":
        k2 = compute_k2(policy_logprobs, reference_logprobs)
        return k2 - k2.detach() + compute_k3(policy_logprobs, reference_logprobs).detach()
    if kind != "k3_weighted":
        raise ValueError(f"KL kind {kind!r} is unknown; known: k1, k2, k3, k3_weighted, k3_with_k2_gradient")
    if old_logprobs is None:
        raise ValueError(
            "KL kind 'k3_weighted' needs old_logprobs, the log-probabilities in the denominator of the ratio"
        )
    return compute_ratio(policy_logprobs - old_logprobs) * compute_k3(policy_logprobs, reference_logprobs)


def compute_kl_rewards(
    policy_logprobs: NDArray[np.floating], reference_logprobs: NDArray[np.floating], *, coefficient: float
) -> NDArray[np.float64]:
    """KL in the reward (PPO, REINFORCE++): `-coefficient * k1` per sampled token, `[K]` float64.

    Add it *after* group normalisation or to a return: added before, the penalty contaminates the group's mean and
    deviation.

    Raises:
        ValueError: lengths differ or a log-probability is not finite (a missing reference must not become zeros, which
            would reward or punish the entropy instead).
    """
    policy, reference = np.asarray(policy_logprobs, dtype=np.float64), np.asarray(reference_logprobs, dtype=np.float64)
    if policy.shape != reference.shape:
        raise ValueError(
            f"policy_logprobs has shape {policy.shape}, reference_logprobs {reference.shape}; both must cover the same "
            "tokens"
        )
    if not (np.isfinite(policy).all() and np.isfinite(reference).all()):
        raise ValueError(
            "a log-probability is not finite; the KL penalty needs both policies' log-probabilities for every sampled "
            "token"
        )
    return -coefficient * (policy - reference)


def update_kl_coefficient(
    coefficient: float, measured_kl: float, *, target: float, horizon: float, num_samples: int
) -> float:
    """Return the next adaptive coefficient (arXiv 1909.08593).

    `coefficient (1 + clip(measured / target - 1, -0.2, 0.2) num_samples / horizon)`. `measured_kl` and `target` in nats
    per the same unit (token or sequence); `horizon` in samples. Raises ValueError unless target and horizon are
    positive and the measurement is finite.
    """
    if not (target > 0 and horizon > 0 and np.isfinite(measured_kl)):
        raise ValueError(
            f"adaptive KL: target {target} and horizon {horizon} must be positive and the measured KL {measured_kl} "
            "finite"
        )
    error = min(max(measured_kl / target - 1, -0.2), 0.2)
    return coefficient * (1 + error * num_samples / horizon)
