"""Group-relative advantages (GRPO: Shao et al. 2024, arXiv 2402.03300, section 4.1.2; without deviation: Dr.GRPO, 2503.20783)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Deviation = Literal["sample", "population", "none"]


def compute_grpo_advantages(
    rewards: Sequence[float | None], *, deviation: Deviation = "sample", epsilon: float = 1e-6
) -> list[float | None]:
    """`A_i = (r_i - mean) / (std + epsilon)` over the scored members of one group.

    Args:
        rewards: one total per member, any length; None where it could not be scored. Such members are left out of mean and
            standard deviation.
        deviation: "sample" divides by the n-1 standard deviation (verl, TRL, OpenRLHF, SkyRL), "population" by the n one (rLLM),
            "none" not at all (Dr.GRPO, prime-rl). The paper does not say which; frameworks differ by sqrt((n-1)/n).
        epsilon: added to the standard deviation; unused with "none".

    Returns:
        One advantage per member, None where the reward was None. A group of one, and a group whose rewards all lie within
        1e-6 of their scale, gives exactly 0.0: rounding never becomes signal.

    Raises:
        ValueError: a reward is not finite, or epsilon is negative.
    """
    if epsilon < 0:
        raise ValueError(f"epsilon is {epsilon}; it must be at least 0")
    scored = [r for r in rewards if r is not None]
    for reward in scored:
        if not math.isfinite(reward):
            raise ValueError(f"reward {reward} is not finite; an unscorable trajectory must be None (Invalid)")
    if not has_signal(rewards):
        return [None if r is None else 0.0 for r in rewards]
    mean = math.fsum(scored) / len(scored)
    scale = 1.0
    if deviation != "none":
        squares = math.fsum((r - mean) ** 2 for r in scored)
        scale = math.sqrt(squares / (len(scored) - (1 if deviation == "sample" else 0))) + epsilon
    return [None if r is None else (r - mean) / scale for r in rewards]


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Whether the scored rewards of a group differ by more than 1e-6 of their scale, so that a baseline leaves something."""
    scored = [r for r in rewards if r is not None]
    if len(scored) < 2:
        return False
    return max(scored) - min(scored) > 1e-6 * max(1e-12, max(abs(r) for r in scored))
