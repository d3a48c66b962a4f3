"""DPO on the one step in which two attempts at the same task diverge (Step-DPO: arXiv 2406.18629)."""

from __future__ import annotations

import torch

from turnwise.algorithms.preference.dpo import PairOutput, compute_dpo_loss


def compute_step_dpo_loss(
    policy_logprobs: torch.Tensor,
    reference_logprobs: torch.Tensor,
    sequence: torch.Tensor,
    in_step: torch.Tensor,
    *,
    num_pairs: int,
    beta: float,
) -> PairOutput:
    """`compute_dpo_loss` over the tokens of the differing step only (`in_step [K]`, bool).

    All others get a gradient of exactly 0. The shared prefix cancels in DPO anyway; this also leaves out the turns
    *after* the step, whose quality says nothing about the step.

    Raises:
        ValueError: a pair has a side without a step token, or `beta` is not positive.
    """
    counts = torch.bincount(sequence[in_step], minlength=2 * num_pairs)
    if bool((counts[: 2 * num_pairs] == 0).any()):
        side = int((counts == 0).nonzero()[0])
        raise ValueError(
            f"pair {side // 2} has no step token on its {'rejected' if side % 2 else 'chosen'} side; mark the turn "
            "that differs"
        )
    return compute_dpo_loss(
        policy_logprobs[in_step], reference_logprobs[in_step], sequence[in_step], num_pairs=num_pairs, beta=beta
    )
