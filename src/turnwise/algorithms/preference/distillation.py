"""On-policy distillation (MiniLLM: arXiv 2306.08543, GKD: 2306.13649): a teacher scores the student's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def compute_distillation_advantages(
    behavior_logprobs: NDArray[np.floating], teacher_logprobs: NDArray[np.floating], *, coefficient: float = 1.0
) -> NDArray[np.float64]:
    """`coefficient (teacher - behavior)` per sampled token, `[K]` float64.

    Minus the k1 estimate of KL(student || teacher). To be used as (or added to) the advantages in any policy loss; its
    expected gradient is that of the per-token reverse KL with the future discounted away. Needs only the teacher's
    log-probability of the sampled token.

    Raises:
        ValueError: lengths differ or a log-probability is not finite.
    """
    behavior, teacher = np.asarray(behavior_logprobs, dtype=np.float64), np.asarray(teacher_logprobs, dtype=np.float64)
    if behavior.shape != teacher.shape:
        raise ValueError(
            f"behavior_logprobs has shape {behavior.shape}, teacher_logprobs {teacher.shape}; both must cover the same "
            "tokens"
        )
    if not (np.isfinite(behavior).all() and np.isfinite(teacher).all()):
        raise ValueError(
            "a log-probability is not finite; the teacher must score every sampled token using the student's vocabulary"
        )
    return coefficient * (teacher - behavior)


def compute_reverse_kl_loss(policy_logits: torch.Tensor, teacher_logits: torch.Tensor) -> torch.Tensor:
    """Exact `KL(policy || teacher)` per token, `[K]`, from logits `[K, V]` of one vocabulary.

    Only the policy gets a gradient. The policy's logits must already be divided by the sampling temperature. Raises
    ValueError when the shapes differ.
    """
    if policy_logits.shape != teacher_logits.shape:
        raise ValueError(
            f"policy_logits has shape {tuple(policy_logits.shape)}, teacher_logits {tuple(teacher_logits.shape)}; "
            "exact distillation needs the same tokens and the same vocabulary"
        )
    policy, teacher = policy_logits.log_softmax(-1), teacher_logits.detach().log_softmax(-1)
    return (policy.exp() * (policy - teacher)).sum(-1)
