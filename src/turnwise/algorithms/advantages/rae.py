"""A running baseline per role for self-play (RAE, SPIRAL: arXiv 2506.24119)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from turnwise.algorithms.advantages.groups import select_scored
from turnwise.algorithms.credit import (
    CreditMethod,
    CreditTrajectory,
    TokenAdvantages,
    broadcast_outcome,
    compute_total_reward,
    group_indices,
)
from turnwise.algorithms.options import check_range


def compute_rae_advantages(
    rewards: Sequence[float | None], roles: Sequence[str], baselines: Mapping[str, float], *, decay: float = 0.95
) -> tuple[list[float | None], dict[str, float]]:
    """`A_i = r_i - b_role`; then `b_role` becomes `decay * b_role + (1 - decay) * (mean reward of the role)`.

    Args:
        rewards: totals; None is left out of the advantages and of the baselines.
        roles: one per reward.
        baselines: per role, before this batch; a role not in it starts at 0.0.
        decay: in [0, 1]; 1 never changes a baseline.

    Returns:
        Advantages, and the baselines after this batch (a new dict; roles without a scored reward keep theirs). A
        baseline never contains the reward it is subtracted from. Groups are not used: a single trajectory gets `r - b`,
        and so does a constant group.

    Deviation: one update per batch with the role's mean, so that the order of trajectories does not matter; updating
    after every trajectory is this function called with one trajectory at a time.

    Raises:
        ValueError: a reward is not finite, decay is outside [0, 1], or the numbers of roles and rewards differ.
    """
    check_range("decay", decay, 0, 1)
    if len(roles) != len(rewards):
        raise ValueError(f"{len(roles)} roles for {len(rewards)} rewards; pass one role per trajectory")
    select_scored(rewards)
    after = dict(baselines)
    for members in group_indices(roles):
        scored = [r for r in (rewards[i] for i in members) if r is not None]
        if scored:
            role = roles[members[0]]
            after[role] = decay * baselines.get(role, 0.0) + (1 - decay) * math.fsum(scored) / len(scored)
    advantages = [None if r is None else r - baselines.get(role, 0.0) for r, role in zip(rewards, roles, strict=True)]
    return advantages, after


class RoleBaselineCredit:
    """RAE as a credit function. It keeps the baselines from step to step: save and restore them with the run."""

    def __init__(self, *, decay: float = 0.95) -> None:
        check_range("decay", decay, 0, 1)
        self.decay = decay
        self.baselines: dict[str, float] = {}

    def __call__(self, trajectories: Sequence[CreditTrajectory], /) -> list[TokenAdvantages | None]:
        """Apply `compute_rae_advantages` to total rewards, then keep the new baselines."""
        rewards = [compute_total_reward(trajectory) for trajectory in trajectories]
        roles = [trajectory.role for trajectory in trajectories]
        advantages, self.baselines = compute_rae_advantages(rewards, roles, self.baselines, decay=self.decay)
        return broadcast_outcome(trajectories, advantages)

    def state_dict(self) -> dict[str, object]:
        """`{"baselines": {role: value}}`."""
        return {"baselines": dict(self.baselines)}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` returned. Raises ValueError when it is anything else."""
        baselines = state.get("baselines")
        if set(state) != {"baselines"} or not isinstance(baselines, Mapping):
            raise ValueError(
                f"state of rae has the keys {sorted(state)}; expected only 'baselines', a mapping from role to number"
            )
        for role, value in baselines.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"the baseline of role {role!r} is {value!r}; it must be a finite number")
        self.baselines = {str(role): float(value) for role, value in baselines.items()}


RAE = CreditMethod(
    name="rae",
    aliases=("SPIRAL",),
    summary="outcome against a running baseline of its role, for self-play",
    formula="A = r - b_role; then b <- decay b + (1 - decay) mean(r of the role)",
    paper="2506.24119",
    defaults={"decay": 0.95},
    group_of_one="r - b",
    constant_group="r - b",
    needs=("role",),
    compares="nothing",
    build=RoleBaselineCredit,
)
