"""A reward mix that moves from dense step scores to the outcome alone as training proceeds.

Early: 0.7 mean step score + 0.3 outcome. Middle: 0.3 mean milestone score + 0.7 outcome. Late: outcome only. This is an
illustration found alongside progressive reward shaping (arXiv 2512.07478), not that paper's method, which is
`rewards/staged.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory, TokenAdvantages
from turnwise.algorithms.options import check_choice, check_range
from turnwise.algorithms.turns.groups import (
    TurnAdvantages,
    check_comparison,
    check_finite,
    credit_by_group,
    turn_rewards,
)

Stage = Literal["early", "middle", "late"]
Switch = Literal["step", "success"]
STAGES: tuple[Stage, Stage, Stage] = ("early", "middle", "late")


def compute_mixed_reward(outcome: float, steps: Sequence[float], milestones: Sequence[float], stage: Stage) -> float:
    """Compute the mix for one stage: weights as in the module docstring; the mean of no steps or no milestones is 0.

    Raises ValueError when a number is not finite or the stage is unknown.
    """
    check_finite([outcome, *steps, *milestones], "reward")
    if stage == "early":
        return 0.7 * _mean(steps) + 0.3 * outcome
    if stage == "middle":
        return 0.3 * _mean(milestones) + 0.7 * outcome
    if stage == "late":
        return outcome
    raise ValueError(f"stage is {stage!r}; choose one of {', '.join(STAGES)}")


def find_stage(measure: float, boundaries: Sequence[float]) -> Stage:
    """Return "early" below the first boundary, "middle" below the second, else "late".

    `measure` is a step or a share of successes.
    Raises ValueError unless there are two boundaries in ascending order.
    """
    if len(boundaries) != 2 or not boundaries[0] <= boundaries[1]:
        raise ValueError(
            f"boundaries are {list(boundaries)}; pass two numbers in ascending order, the starts of the middle and the "
            "late stage"
        )
    return STAGES[sum(measure >= boundary for boundary in boundaries)]


class ScheduledMix:
    """A CreditFunction: GRPO on the mixed reward, whose stage follows the steps taken or the success measured so far.

    Every call is one training step. Step scores are `CreditTurn.reward`; a turn is a key milestone if it has a
    `process_score` (our interpretation: the source does not say what makes a step a milestone). With "success", the
    stage of a call is determined by the calls before it, through the exponential mean (from 0, factor `memory`) of the
    share of scored trajectories whose outcome reaches `success_outcome`; a stage never goes back to an earlier one, so
    that a noisy batch does not move the target. `state_dict` contains the whole state.
    """

    def __init__(
        self,
        *,
        switch: Switch = "success",
        boundaries: Sequence[float] = (0.3, 0.7),
        success_outcome: float = 1.0,
        memory: float = 0.9,
        deviation: Deviation = "sample",
        epsilon: float = 1e-6,
    ) -> None:
        check_choice("switch", switch, get_args(Switch))
        check_range("memory", memory, 0, 1)
        check_comparison(deviation=deviation, epsilon=epsilon)
        find_stage(0.0, boundaries)
        self._by_step = switch == "step"
        self._boundaries = tuple(boundaries)
        self._success_outcome, self._memory = success_outcome, memory
        self._deviation, self._epsilon = deviation, epsilon
        self._step, self._success, self._peak = 0, 0.0, 0.0

    @property
    def stage(self) -> Stage:
        """The stage the next call will use."""
        return find_stage(self._step if self._by_step else self._peak, self._boundaries)

    def __call__(self, trajectories: Sequence[CreditTrajectory], /) -> list[TokenAdvantages | None]:
        """Return advantages under the current stage; then the step is counted and the success measured."""
        stage = self.stage
        credited = credit_by_group(trajectories, lambda members, outcomes: self._compute(members, outcomes, stage))
        outcomes = [trajectory.reward for trajectory in trajectories if trajectory.reward is not None]
        if outcomes:
            share = sum(outcome >= self._success_outcome for outcome in outcomes) / len(outcomes)
            self._success = self._memory * self._success + (1 - self._memory) * share
            self._peak = max(self._peak, self._success)
        self._step += 1
        return credited

    def _compute(self, members: list[CreditTrajectory], outcomes: list[float], stage: Stage) -> TurnAdvantages:
        mixed = []
        for member, outcome in zip(members, outcomes, strict=True):
            milestones = [turn.process_score for turn in member.turns if turn.process_score is not None]
            mixed.append(compute_mixed_reward(outcome, turn_rewards(member), milestones, stage))
        advantages = compute_grpo_advantages(mixed, deviation=self._deviation, epsilon=self._epsilon)
        return [[value or 0.0] * len(member.turns) for value, member in zip(advantages, members, strict=True)]

    def state_dict(self) -> dict[str, object]:
        """Steps taken, mean success, and its highest value so far."""
        return {"step": self._step, "success": self._success, "peak": self._peak}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue from what `state_dict` returned. Raises ValueError when it is anything else."""
        numbers = [value for value in state.values() if isinstance(value, int | float) and math.isfinite(value)]
        if set(state) != set(self.state_dict()) or len(numbers) != len(state):
            raise ValueError(
                f"state of scheduled_mix is {dict(state)}; expected finite numbers under {sorted(self.state_dict())}"
            )
        restored = dict(zip(state, numbers, strict=True))
        self._step, self._success, self._peak = (
            int(restored["step"]),
            float(restored["success"]),
            float(restored["peak"]),
        )


def build_scheduled_mix(
    *,
    switch: Switch = "success",
    boundaries: Sequence[float] = (0.3, 0.7),
    success_outcome: float = 1.0,
    memory: float = 0.9,
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
) -> CreditFunction:
    """Build a new `ScheduledMix`; `boundaries` are steps with switch "step", success shares with "success"."""
    return ScheduledMix(
        switch=switch,
        boundaries=boundaries,
        success_outcome=success_outcome,
        memory=memory,
        deviation=deviation,
        epsilon=epsilon,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


SCHEDULED_MIX = CreditMethod(
    name="scheduled_mix",
    summary="GRPO on a reward that moves from step scores to milestones to the outcome, by step or by measured success",
    formula="early 0.7 mean(steps) + 0.3 R; middle 0.3 mean(milestones) + 0.7 R; late R",
    paper="an illustration beside 2512.07478, not the paper's method",
    defaults={
        "switch": "success",
        "boundaries": (0.3, 0.7),
        "success_outcome": 1.0,
        "memory": 0.9,
        "deviation": "sample",
        "epsilon": 1e-6,
    },
    group_of_one="0",
    constant_group="0 where the mixed rewards agree; always in the late stage",
    build=build_scheduled_mix,
)
