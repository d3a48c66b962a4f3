"""Every credit method of the table as the laboratory runs it: its options, its signal and its sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from laboratory.paths import Paths, sample_entropy_trees, sample_groups, sample_trees
from laboratory.signals import (
    Critic,
    ExactValues,
    ForkedValues,
    GreedyAttempts,
    ImplicitRewards,
    NoSignal,
    PlanProbability,
    ProcessModel,
    ProgressPotential,
    ProgressRegression,
    ProgressRise,
    Signal,
    TokenLogprobs,
    TokenMass,
)
from laboratory.world import FloatArray, World

NUM_GROUPS = 2
GROUP_SIZE = 8

Sampler = Callable[[World, FloatArray, int, int, np.random.Generator], Paths]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One row of the result: a credit method with its settings."""

    name: str
    credit: str
    """Name in the table of credit methods."""
    supplied: str
    """The input beyond outcomes, in one phrase; empty if there is none."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Options that override the method's defaults."""
    signal: Callable[[World, FloatArray, np.random.Generator], Signal] = NoSignal
    sampler: Sampler = sample_groups
    group_size: int = GROUP_SIZE
    anchors: Literal["state", "observation"] = "state"
    """The content of `CreditTurn.state`."""
    is_limit: bool = False
    """Whether the arm reads something that no run has: shown for comparison, not a competitor."""


_ARMS = (
    Arm(name="reinforce", credit="reinforce", supplied=""),
    Arm(name="reinforce_plus_plus", credit="reinforce_plus_plus", supplied=""),
    Arm(name="reinforce_plus_plus_baseline", credit="reinforce_plus_plus_baseline", supplied=""),
    Arm(name="grpo", credit="grpo", supplied=""),
    Arm(name="dr_grpo", credit="dr_grpo", supplied=""),
    Arm(name="rloo", credit="rloo", supplied=""),
    Arm(name="opo", credit="opo", supplied=""),
    Arm(name="otb", credit="otb", supplied="the policy's own distributions", signal=TokenMass),
    Arm(name="remax", credit="remax", supplied="one greedy attempt per task (paid)", signal=GreedyAttempts),
    Arm(name="max_rl", credit="max_rl", supplied=""),
    Arm(name="gdpo", credit="gdpo", supplied="the outcome as its only reward part"),
    Arm(name="pass_at_k", credit="pass_at_k", supplied=""),
    Arm(name="rae", credit="rae", supplied="one role for all trajectories"),
    Arm(name="vspo", credit="vspo", supplied=""),
    Arm(name="gae", credit="gae", supplied="a learned table critic", signal=Critic),
    Arm(
        name="gae, lambda 0.96",
        credit="gae",
        supplied="a learned table critic",
        options={"gae_lambda": 0.96},
        signal=Critic,
    ),
    Arm(name="turn_gae", credit="turn_gae", supplied="a learned table critic", signal=Critic),
    Arm(name="bilevel_gae", credit="bilevel_gae", supplied="a learned table critic", signal=Critic),
    Arm(name="turn_discount", credit="turn_discount", supplied=""),
    Arm(name="gigpo", credit="gigpo", supplied="state keys"),
    Arm(name="gigpo, gamma 1", credit="gigpo", supplied="state keys", options={"gamma": 1.0}),
    Arm(
        name="gigpo, observations",
        credit="gigpo",
        supplied="observations as keys, which hide part of the state",
        anchors="observation",
    ),
    Arm(
        name="tree",
        credit="tree",
        supplied="two trees per task, by forking",
        signal=TokenLogprobs,
        sampler=sample_trees,
    ),
    Arm(
        name="arpo",
        credit="arpo",
        supplied="branches where entropy rose, by forking",
        signal=TokenLogprobs,
        sampler=sample_entropy_trees,
    ),
    Arm(
        name="vine",
        credit="vine",
        supplied="4 forks from every state (paid); groups of 2",
        signal=ForkedValues,
        group_size=2,
    ),
    Arm(name="vine, exact values", credit="vine", supplied="true state values", signal=ExactValues, is_limit=True),
    Arm(name="multi_turn_grpo", credit="multi_turn_grpo", supplied="hand-written turn rewards", signal=ProgressRise),
    Arm(name="potential", credit="potential", supplied="a hand-written potential", signal=ProgressPotential),
    Arm(
        name="scheduled_mix",
        credit="scheduled_mix",
        supplied="hand-written turn rewards and milestones",
        signal=ProgressRise,
    ),
    Arm(
        name="process_scores",
        credit="process_scores",
        supplied="scores of an imperfect process model",
        signal=ProcessModel,
    ),
    Arm(name="igpo", credit="igpo", supplied="probability of a gold plan", signal=PlanProbability),
    Arm(name="spa", credit="spa", supplied="a learned progress regression", signal=ProgressRegression),
    Arm(name="prime", credit="prime", supplied="a learned implicit reward model", signal=ImplicitRewards),
)

ARMS: dict[str, Arm] = {arm.name: arm for arm in _ARMS}
"""Name to arm, in the order of the credit tables."""
