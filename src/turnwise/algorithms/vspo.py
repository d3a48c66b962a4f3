"""Value-based sampling (VSPO, arXiv 2512.07478): prompts of high task value replace groups that teach nothing.

The paper states the task value V = (R_max - mean) * std, the refill of zero-advantage groups by V, and that repeated
samples are decayed and clipped. Where it leaves choices open, we use the population deviation in V, draw prompts with
replacement and probability V / sum V, decay by `A k^-decay`, and let the clip bound |A|.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import get_args

from turnwise.algorithms.advantages.groups import has_signal
from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    TokenAdvantages,
    broadcast_outcome,
    compute_total_reward,
    group_indices,
)
from turnwise.algorithms.options import check_choice, check_range
from turnwise.core.seeds import derive_seed, uniforms


def compute_task_value(rewards: Sequence[float | None], *, max_reward: float = 1.0) -> float:
    """`V = (R_max - mean) * std` over the scored rewards of one prompt's rollouts (population deviation).

    High if a prompt is mostly failed and sometimes solved. A group without signal (constant, of one, empty, nothing
    scored) has exactly 0.

    Raises:
        ValueError: a reward is not finite or above `max_reward`.
    """
    scored = [reward for reward in rewards if reward is not None]
    for reward in scored:
        if not (math.isfinite(reward) and reward <= max_reward):
            raise ValueError(
                f"reward {reward} must be finite and at most max_reward {max_reward}; set max_reward to the highest "
                "possible reward"
            )
    if not has_signal(rewards):
        return 0.0
    mean = math.fsum(scored) / len(scored)
    return (max_reward - mean) * math.sqrt(math.fsum((reward - mean) ** 2 for reward in scored) / len(scored))


def draw_refill(values: Mapping[str, float], *, num_slots: int, seed: int) -> list[str]:
    """Choose the prompts that fill `num_slots` empty slots: drawn with replacement, with probability V / sum V.

    The k-th draw depends on `values`, `seed` and k only. Prompts of value 0 are never drawn; if all are 0, nothing is
    drawn (an empty list).

    Raises:
        ValueError: a value is negative or not finite, or num_slots is negative.
    """
    if num_slots < 0:
        raise ValueError(f"num_slots is {num_slots}; it must be at least 0")
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"the task value for {name!r} is {value}; it must be finite and at least 0")
    names = sorted(name for name, value in values.items() if value > 0)
    if not names:
        return []
    total = math.fsum(values[name] for name in names)
    drawn = []
    for uniform in uniforms(seed, num_slots):
        remaining = float(uniform) * total
        at = 0
        while at < len(names) - 1 and remaining >= values[names[at]]:
            remaining -= values[names[at]]
            at += 1
        drawn.append(names[at])
    return drawn


def smooth_advantage(advantage: float, copy: int, *, decay: float = 1.0, clip: float = 1.0) -> float:
    """Return the advantage with which the copy-th use of a sample trains.

    The first use (1) has it unchanged, later ones `clip(A copy^-decay, -clip, clip)`.

    Raises ValueError when copy is below 1, or decay or clip are negative.
    """
    if copy < 1 or decay < 0 or clip < 0:
        raise ValueError(
            f"copy is {copy}, decay {decay}, clip {clip}; copy must be at least 1, decay and clip at least 0"
        )
    return advantage if copy == 1 else min(clip, max(-clip, advantage * copy**-decay))


def build_vspo(
    *,
    max_reward: float = 1.0,
    decay: float = 1.0,
    clip: float = 1.0,
    seed: int = 0,
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
) -> CreditFunction:
    """GRPO in which every group without signal is replaced by another use of a group drawn by task value.

    A group drawn m times trains with the sum of `smooth_advantage` over its 1 + m uses: one row of the batch with the
    gradient (before any ratio is clipped) of 1 + m rows, without sampling again. To sample fresh rollouts instead, use
    `draw_refill` in the loop. Draws depend on `seed` and the group keys of the batch, so the same batch gives the same
    numbers. Rewards are totals (outcome plus turn rewards), and one above `max_reward` raises. A group of one and a
    constant group get exactly 0.
    """
    check_choice("deviation", deviation, get_args(Deviation))
    for option, value in (("epsilon", epsilon), ("decay", decay), ("clip", clip)):
        check_range(option, value, 0)

    def credit(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        groups = {trajectories[indices[0]].group: indices for indices in group_indices([t.group for t in trajectories])}
        rewards = {name: [compute_total_reward(trajectories[i]) for i in indices] for name, indices in groups.items()}
        values = {name: compute_task_value(totals, max_reward=max_reward) for name, totals in rewards.items()}
        num_slots = sum(not has_signal(totals) for totals in rewards.values())
        drawn = draw_refill(values, num_slots=num_slots, seed=derive_seed(seed, "vspo", *sorted(groups)))
        advantages: list[float | None] = [None] * len(trajectories)
        for name, indices in groups.items():
            uses = 1 + drawn.count(name)
            for i, value in zip(
                indices, compute_grpo_advantages(rewards[name], deviation=deviation, epsilon=epsilon), strict=True
            ):
                if value is not None:
                    advantages[i] = math.fsum(
                        smooth_advantage(value, copy, decay=decay, clip=clip) for copy in range(1, uses + 1)
                    )
        return broadcast_outcome(trajectories, advantages)

    return credit


VSPO = CreditMethod(
    name="vspo",
    summary="GRPO; places of groups without signal go to further, decayed uses of groups drawn by task value",
    formula="V = (R_max - mean) * std; A_i = sum over uses k of clip(norm(R)_i k^-decay), first use unclipped",
    paper="2512.07478 (refill, decay and clip are our reading)",
    defaults={"max_reward": 1.0, "decay": 1.0, "clip": 1.0, "seed": 0, "deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0",
    build=build_vspo,
)
