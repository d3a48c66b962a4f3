"""The optimal token baseline (arXiv 2602.07078): one per position of a group, weighted by accumulated gradient
norms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from turnwise.algorithms.advantages.groups import has_signal
from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    FloatArray,
    TokenAdvantages,
    compute_token_rewards,
    group_indices,
    join_turns,
    split_turns,
)


def compute_path_energy(logprobs: FloatArray, squared_mass: FloatArray) -> FloatArray:
    """`W_t = sum_{j<=t} (1 - 2 p_j + sum_v p_jv^2)`, `[L]`: squared gradient norms of the logits, summed.

    One term is the squared distance between the sampled token's one-hot vector and the distribution it was drawn from,
    at least 0.

    Args:
        logprobs: `[L]`, of the sampled tokens.
        squared_mass: `[L]`, the sum of squared probabilities over the vocabulary at each of them.

    Raises:
        ValueError: the lengths differ.
    """
    if logprobs.shape != squared_mass.shape:
        raise ValueError(
            f"logprobs has shape {list(logprobs.shape)}, squared_mass {list(squared_mass.shape)}; pass one value per "
            "sampled token"
        )
    # Rounding may put a token of probability 1 slightly below 0.
    energy: FloatArray = np.cumsum(np.maximum(1 - 2 * np.exp(logprobs) + squared_mass, 0.0))
    return energy


def compute_otb_advantages(returns: Sequence[FloatArray], energies: Sequence[FloatArray]) -> list[FloatArray]:
    """`A_it = G_it - B_t` with `B_t = sum_i(W_it G_it) / sum_i(W_it)` over the members that reach position t.

    Positions count sampled tokens, across turns. At a position that only one member reaches the baseline is 0, as in
    the reference implementation; if no path has any energy, it is the plain mean. No deviation, no epsilon (the
    reference adds 1e-8 to the sum of W).

    Args:
        returns: `[L_i]` per member of one group: the rewards from each sampled token on.
        energies: `[L_i]` per member (`compute_path_energy`).

    Returns:
        `[L_i]` per member. A group of one gets exactly 0 (deviation: the reference returns the return itself), and so
        does a position at which all members that reach it, two or more, have the same return.

    Raises:
        ValueError: lengths differ.
    """
    if [len(row) for row in returns] != [len(row) for row in energies]:
        raise ValueError(
            f"returns have {[len(r) for r in returns]} tokens, energies {[len(e) for e in energies]}; pass one of each "
            "per token"
        )
    if len(returns) == 1:
        return [np.zeros_like(returns[0])]
    advantages = [np.array(row, dtype=np.float64) for row in returns]
    for at in range(max((len(row) for row in returns), default=0)):
        members = [i for i, row in enumerate(returns) if at < len(row)]
        if len(members) < 2:
            continue
        to_go = [float(returns[i][at]) for i in members]
        gathered = [float(energies[i][at]) for i in members]
        weights = gathered if any(gathered) else [1.0] * len(members)
        baseline = math.fsum(w * g for w, g in zip(weights, to_go, strict=True)) / math.fsum(weights)
        for i, value in zip(members, to_go, strict=True):
            advantages[i][at] = value - baseline if has_signal(to_go) else 0.0
    return advantages


def build_otb() -> CreditFunction:
    """`compute_otb_advantages` on each group, on the undiscounted rewards-to-go of sampled tokens.

    Reads `logprobs` and `squared_mass`.
    """

    def compute(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        credited: list[TokenAdvantages | None] = [None] * len(trajectories)
        for indices in group_indices([trajectory.group for trajectory in trajectories]):
            members = [i for i in indices if trajectories[i].reward is not None]
            returns = [np.cumsum(compute_token_rewards(trajectories[i])[::-1])[::-1] for i in members]
            energies = [
                compute_path_energy(
                    join_turns(trajectories[i], "logprobs"), join_turns(trajectories[i], "squared_mass")
                )
                for i in members
            ]
            for i, values in zip(members, compute_otb_advantages(returns, energies), strict=True):
                credited[i] = split_turns(trajectories[i], values)
        return credited

    return compute


OTB = CreditMethod(
    name="otb",
    aliases=("optimal token baseline",),
    summary=(
        "return per token against the group's mean there, weighted by gradient gathered; none where one member is left"
    ),
    formula="A_t = G_t - sum(W_t G_t) / sum(W_t), W_t = sum_{j<=t} (1 - 2 p_j + sum_v p_jv^2)",
    paper="2602.07078",
    group_of_one="0",
    constant_group="0",
    needs=("logprobs", "squared_mass"),
    build=build_otb,
)
