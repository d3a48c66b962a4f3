"""Rewards a proposer for what its proposals teach: the change in the solve rate of their kind.

Learning progress as a reward is Oudeyer, Kaplan and Hafner's (IEEE TEC 2007); here it is measured per kind of proposal,
against a running mean that starts at 1. So an untried kind counts as solved, and finding out that it is not is
rewarded; that reward vanishes as evidence accumulates, whether or not the kind can be learned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.credit import (
    CreditMethod,
    CreditTrajectory,
    TokenAdvantages,
    broadcast_outcome,
    compute_total_reward,
    group_indices,
)
from turnwise.algorithms.options import check_range

SOLVED = "solved_"
"""Prefix of the part that contains a proposal's solve rate, before the name of its kind."""
PROPOSAL = "proposal"
"""The part whose value is equal for two proposals of a group that are the same."""


def compute_progress(
    rates: Mapping[str, Sequence[float]], means: Mapping[str, float], *, decay: float
) -> tuple[dict[str, float], dict[str, float]]:
    """`progress_k = |mean(p_k) - m_k|`; then `m_k` becomes `d m_k + (1 - d) mean(p_k)` with `d = decay ** n_k`.

    Args:
        rates: solve rates of this batch's proposals in [0, 1], by kind; none is empty.
        means: running means by kind, before this batch; a kind that is not in it starts at 1.0.
        decay: share of a mean that remains after each proposal, in [0, 1]. The order of proposals does not matter.

    Returns:
        Progress of the kinds of `rates`, and the means after this batch (a new dict).
    """
    progress, after = {}, dict(means)
    for kind, each in rates.items():
        mean, before = math.fsum(each) / len(each), means.get(kind, 1.0)
        progress[kind] = abs(mean - before)
        after[kind] = mean + decay ** len(each) * (before - mean)
    return progress, after


class LearningProgressCredit:
    """GRPO in which proposals are also rewarded for progress and for being different. Stores the running means."""

    def __init__(
        self,
        *,
        progress: float = 1.0,
        duplicates: float = 0.1,
        decay: float = 0.99,
        scale: float = 1.0,
        lead: int = 0,
        epsilon: float = 1e-6,
    ) -> None:
        """`scale` multiplies the advantages of groups with proposals, which are short beside their solvers'. In
        the first `lead` steps only these groups train, as the challenger goes first in R-Zero (arXiv 2508.05004)."""
        check_range("progress", progress, 0)
        check_range("duplicates", duplicates, 0)
        check_range("decay", decay, 0, 1)
        check_range("scale", scale, 0)
        check_range("lead", lead, 0)
        check_range("epsilon", epsilon, 0)
        self.progress, self.duplicates, self.decay = progress, duplicates, decay
        self.scale, self.lead, self.epsilon = scale, lead, epsilon
        self.means: dict[str, float] = {}
        self.steps = 0

    def __call__(self, trajectories: Sequence[CreditTrajectory], /) -> list[TokenAdvantages | None]:
        """Return GRPO's advantages for a group without proposals, which are trajectories with a part `solved_KIND`.

        In other groups, the reward of a proposal is raised by the progress of its kind and lowered by the share of the
        group's other members that propose the same, and an advantage is the difference from the group's mean.
        """
        rewards = [compute_total_reward(trajectory) for trajectory in trajectories]
        rates: dict[str, list[float]] = {}
        kinds = [_read_kind(trajectory) for trajectory in trajectories]
        for trajectory, kind in zip(trajectories, kinds, strict=True):
            if kind is not None:
                rates.setdefault(kind, []).append(trajectory.parts[SOLVED + kind])
        progress, self.means = compute_progress(rates, self.means, decay=self.decay)
        leads, self.steps = self.steps < self.lead, self.steps + 1
        advantages: list[float | None] = [None] * len(trajectories)
        for members in group_indices([trajectory.group for trajectory in trajectories]):
            proposals = [trajectories[i].parts.get(PROPOSAL) for i in members if kinds[i] is not None]
            if leads and not proposals:
                continue
            paid = []
            for i in members:
                reward, kind = rewards[i], kinds[i]
                if reward is not None and kind is not None:
                    same = proposals.count(trajectories[i].parts.get(PROPOSAL)) - 1
                    reward += self.progress * progress[kind] - self.duplicates * same / max(1, len(members) - 1)
                paid.append(reward)
            # Proposals are not divided by their deviation: small differences in reward must not become a large signal.
            deviation: Deviation = "none" if proposals else "sample"
            scale = self.scale if proposals else 1.0
            credited = compute_grpo_advantages(paid, deviation=deviation, epsilon=self.epsilon)
            for i, value in zip(members, credited, strict=True):
                advantages[i] = None if value is None else scale * value
        return broadcast_outcome(trajectories, advantages)

    def state_dict(self) -> dict[str, object]:
        """`{"means": {kind: value}, "steps": count}`."""
        return {"means": dict(self.means), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` returned. Raises ValueError when it is anything else."""
        means, steps = state.get("means"), state.get("steps")
        if set(state) != {"means", "steps"} or not isinstance(means, Mapping) or not isinstance(steps, int):
            raise ValueError(
                f"state of learning_progress has the keys {sorted(state)}; expected 'means', a mapping from kind to "
                "number, and 'steps', a count"
            )
        for kind, value in means.items():
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ValueError(f"the mean for kind {kind!r} is {value!r}; it must be a solve rate")
        self.means, self.steps = {str(kind): float(value) for kind, value in means.items()}, steps


def _read_kind(trajectory: CreditTrajectory) -> str | None:
    """Return the kind of a scored proposal; None for any other trajectory."""
    if trajectory.reward is None:
        return None
    return next((name.removeprefix(SOLVED) for name in trajectory.parts if name.startswith(SOLVED)), None)


LEARNING_PROGRESS = CreditMethod(
    name="learning_progress",
    summary="GRPO; proposals are also paid for the change of their kind's solve rate",
    formula="r += progress |mean(p_kind) - m_kind| - duplicates (share that is the same); A = scale (r - mean)",
    paper="doi 10.1109/TEVC.2006.890271",
    defaults={"progress": 1.0, "duplicates": 0.1, "decay": 0.99, "scale": 1.0, "lead": 0, "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0",
    build=LearningProgressCredit,
)
