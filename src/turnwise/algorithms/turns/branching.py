"""Branching where the policy is uncertain after a tool result (ARPO, arXiv 2507.19849): decision and advantage.

`rollout/branching.py` samples the branches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.advantages.grpo import Deviation
from turnwise.algorithms.credit import CreditFunction, CreditMethod
from turnwise.algorithms.turns.tree import Sharing, build_tree


def compute_sampled_entropy(
    logprobs: Sequence[float] | NDArray[np.floating], *, vocab_size: int, max_tokens: int = 20
) -> float:
    """Estimate the entropy of a reply's first tokens from the sampled ones.

    `H = sum_t -log p_t / log(vocab_size)` over the first `max_tokens`. The released code sums the entropies of the ten
    most likely tokens at each position; the expected value of -log p of the drawn token is the entropy: unbiased, but
    noisier. No tokens give 0; a reply with fewer tokens has a smaller sum.

    Raises:
        ValueError: a log-probability is NaN or above 0, or vocab_size is below 2.
    """
    if vocab_size < 2:
        raise ValueError(f"vocab_size is {vocab_size}; entropy needs a vocabulary of at least 2 tokens")
    total = 0.0
    for position, logprob in enumerate(logprobs[:max_tokens]):
        # Rounding may leave the log-probability of a near-certain token slightly above 0.
        if not logprob <= 1e-6:
            raise ValueError(f"{logprob} at position {position} is not a log-probability; it must be at most 0")
        total -= min(float(logprob), 0.0)
    return total / math.log(vocab_size)


def should_branch(
    entropy: float, initial_entropy: float, uniform: float, *, weight: float = 0.2, threshold: float = 0.5
) -> bool:
    """Branch iff `u - weight * (H - H_initial) <= threshold`.

    Args:
        entropy: `compute_sampled_entropy` of the first tokens after a tool result.
        initial_entropy: the same at the start of the trajectory.
        uniform: u, drawn in [0, 1); with no change of entropy a branch is made with probability `threshold`.

    Raises:
        ValueError: an entropy is not finite, or u lies outside [0, 1).
    """
    if not (math.isfinite(entropy) and math.isfinite(initial_entropy)):
        raise ValueError(f"entropies are {entropy} and {initial_entropy}; both must be finite")
    if not 0 <= uniform < 1:
        raise ValueError(f"uniform is {uniform}; it must lie in [0, 1)")
    return uniform - weight * (entropy - initial_entropy) <= threshold


def build_arpo(*, sharing: Sharing = "each", deviation: Deviation = "sample", epsilon: float = 1e-6) -> CreditFunction:
    """GRPO over all leaves of a group; `sharing` determines what turns above a fork get.

    "each" is the paper's soft form (the group's loss averages over the copies), "mean" its hard form (one averaged
    number), "once" is ours.
    """
    return build_tree(intra=0.0, inter=1.0, sharing=sharing, deviation=deviation, epsilon=epsilon)


ARPO = CreditMethod(
    name="arpo",
    summary=(
        "GRPO over all leaves of entropy-guided branching; turns above a fork get each leaf's advantage, or their mean"
    ),
    formula="A_i = norm_group(R)_i; shared turn by `sharing`: each, mean or once",
    paper="2507.19849",
    defaults={"sharing": "each", "deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0",
    needs=("tree", "logprobs"),
    compares="leaves",
    branches="entropy",
    build=build_arpo,
)
