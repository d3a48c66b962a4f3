"""The models that a run holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The models of a run besides the policy, and the copies that are made of weights and moments."""

    num_learners: int = 1
    """Policies that learn, each with the reference, the moments and the engine that the recipe asks for."""
    is_adapted: bool = False
    """Whether an adapter is trained: then copies of the policy share its frozen weights in one process."""
    has_served: bool = False
    """Whether engines sample from a copy of the policy, so that rollouts go on while the trainer steps."""
    has_reference: bool = False
    """Whether a frozen copy of the policy that RL starts from is kept."""
    learns_rewards: bool = False
    """Whether an implicit reward model, which starts as a copy of the policy, is trained."""
    critic: Literal["none", "head", "separate"] = "none"
    teacher: str = ""
    """Where the teacher is; empty is none."""
    frozen: tuple[str, ...] = ()
    """Where models of roles are that do not learn; each has an engine."""
    num_past: int = 0
    """Snapshots of the run that play a role, at most; each has an engine."""
    steps_back: bool = False
    """Whether a step keeps the weights and moments that policy and critic had before it: where it has several
    updates."""
    steps_rewards_back: bool = False
    """Whether a step keeps those of the implicit reward model."""
