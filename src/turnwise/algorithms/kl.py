"""Per-token estimators of the divergence from a reference policy (Schulman, "Approximating KL Divergence")."""

from __future__ import annotations

import torch


def compute_k3(policy_logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    """k3 = exp(-r) + r - 1 with `r = policy - reference`, `[K]` each; an unbiased, non-negative estimate of KL(policy || reference).

    Tokens must be drawn from the policy. As a loss its gradient is that of KL(reference || policy), as in GRPO (equation 4 of
    arXiv 2402.03300). `r` is clamped to +-20 before exp.
    """
    log_ratio = (policy_logprobs - reference_logprobs).clamp(-20.0, 20.0)
    return torch.expm1(-log_ratio) + log_ratio
