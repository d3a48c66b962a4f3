"""What algorithms without credit keep of a batch: the best attempts, or pairs."""

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class RejectionSection(Section):
    """For train.algorithm = "rejection": keep the best attempts at each task, fine-tune on them, sample again. Attempts
    at a limit are left out by `rollout.train_truncated`."""

    num_kept: int = Field(1, ge=1)
    """Maximum number of trajectories kept per task and step, best first; only one is kept of several with the same
    replies."""
    first_threshold: float = 1.0
    """Minimum reward of a trajectory to be kept in the first pass over a batch."""
    last_threshold: float = 1.0
    """Minimum reward in the last pass; in between it rises evenly (ReST)."""
    passes: int = Field(1, ge=1)
    """Passes over a batch of rollouts, each over the trajectories that reach its minimum reward, in
    `loss.updates_per_step` optimizer steps."""


class PreferenceSection(Section):
    """Pairs mined from groups, for train.algorithm = "dpo" (whole attempts) and "step_dpo" (the step at which two
    attempts diverge)."""

    beta: float = Field(0.1, gt=0)
    """Strength of the pull towards the policy at the start of training."""
    kind: Literal["sigmoid", "ipo"] = "sigmoid"
    """The pair loss: DPO's sigmoid or IPO's; step_dpo has "sigmoid" only."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Probability that a pair has the wrong order; only for dpo with "sigmoid"."""
    min_margin: float = Field(0.5, gt=0)
    """Minimum difference in reward within a pair."""
    max_pairs: int = Field(1, ge=1)
    """Maximum number of pairs of whole attempts from one group."""
