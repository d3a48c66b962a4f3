"""Direct preference optimisation on pairs (DPO: arXiv 2305.18290; IPO: arXiv 2310.12036)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

PairLoss = Literal["sigmoid", "ipo"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairOutput:
    """A pair loss's values for every pair."""

    losses: torch.Tensor
    """`[P]`, to be minimised (take the mean over pairs)."""
    chosen_rewards: torch.Tensor
    """`[P]`, detached: `beta (policy - reference)` of the chosen sequences."""
    rejected_rewards: torch.Tensor
    """`[P]`, detached. Accuracy is the share of pairs with `chosen_rewards > rejected_rewards`."""


def sum_pair_logprobs(
    logprobs: torch.Tensor, sequence: torch.Tensor, *, num_pairs: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum packed tokens `[K]` to sequence log-probabilities `(chosen [P], rejected [P])`.

    `sequence [K]` integer: 2p is the chosen and 2p + 1 the rejected sequence of pair p. A sequence without tokens sums
    to 0. Raises ValueError if a token does not belong to a pair.
    """
    if len(sequence) and int(sequence.max()) >= 2 * num_pairs:
        raise ValueError(
            f"a token belongs to sequence {int(sequence.max())}, but {num_pairs} pairs have only {2 * num_pairs} "
            "sequences"
        )
    sums = logprobs.new_zeros(2 * num_pairs).index_add(0, sequence, logprobs)
    return sums[0::2], sums[1::2]


def compute_dpo_loss(
    policy_logprobs: torch.Tensor,
    reference_logprobs: torch.Tensor,
    sequence: torch.Tensor,
    *,
    num_pairs: int,
    beta: float,
    kind: PairLoss = "sigmoid",
    label_smoothing: float = 0.0,
) -> PairOutput:
    """`-log sigmoid(beta h)` per pair, `h = (policy - reference)[chosen] - (policy - reference)[rejected]`.

    Args:
        policy_logprobs: `[K]` with gradient: the trained tokens of all pairs, observations left out.
        reference_logprobs: `[K]`.
        sequence: `[K]` integer, 2p chosen and 2p + 1 rejected of pair p.
        num_pairs: P.
        beta: strength of the regularisation towards the reference.
        kind: "sigmoid" is DPO (equation 7 of its paper), "ipo" is `(h - 1 / (2 beta))^2` (equation 17 of IPO's), whose
            optimum is finite.
        label_smoothing: probability that a label is wrong (cDPO):
            `-(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h)`; sigmoid only.

    `h` is a sum over tokens for both kinds; TRL's IPO averages over tokens instead. Both are finite at any log-ratio.

    Raises:
        ValueError: beta is not positive, label_smoothing is not in [0, 0.5), an unknown kind, or smoothing with "ipo".
    """
    if not beta > 0:
        raise ValueError(f"beta is {beta}; it must be positive (usual: 0.1)")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing is {label_smoothing}; it must be a probability below 0.5")
    if kind not in ("sigmoid", "ipo") or (kind == "ipo" and label_smoothing):
        raise ValueError(
            f"unsupported pair loss {kind!r} with label_smoothing {label_smoothing}; use 'sigmoid', or 'ipo' without "
            "smoothing"
        )
    chosen, rejected = sum_pair_logprobs(policy_logprobs - reference_logprobs, sequence, num_pairs=num_pairs)
    margin = chosen - rejected
    if kind == "ipo":
        losses = (margin - 1 / (2 * beta)).square()
    else:
        losses = -(1 - label_smoothing) * F.logsigmoid(beta * margin) - label_smoothing * F.logsigmoid(-beta * margin)
    return PairOutput(losses=losses, chosen_rewards=beta * chosen.detach(), rejected_rewards=beta * rejected.detach())
