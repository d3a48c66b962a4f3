"""How trajectories are sampled and limited."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class DynamicSamplingSection(Section):
    """Groups that teach nothing are replaced by further ones (DAPO; by task value: VSPO)."""

    metric: str = ""
    """A group counts when this varies among its members: "reward", or a part of the reward such as "success". Empty is
    off."""
    max_batches: int = Field(3, ge=1)
    """Budget per step, in batches of rollout.tasks_per_step groups, the first one included."""
    refill: Literal["new", "value"] = "new"
    """"new" draws further tasks. "value" samples tasks of this step again, drawn by (best reward - mean) *
    deviation."""
    max_reward: float = 1.0
    """The best reward there is; read by "value" only."""


class RolloutSection(Section):
    """One RL step samples `tasks_per_step * group_size` trajectories."""

    tasks_per_step: int = Field(32, ge=1)
    """Tasks per RL step."""
    group_size: int = Field(8, ge=1)
    """Trajectories per task."""
    max_turns: int = Field(4, ge=1)
    """Replies per trajectory."""
    max_turn_tokens: int = Field(64, ge=1)
    """Sampled tokens per reply."""
    max_tokens: int = Field(512, ge=2)
    """Tokens of a whole trajectory: prompt, replies, observations."""
    temperature: float = Field(1.0, gt=0)
    """Of training rollouts; the trainer scores with the same."""
    train_truncated: bool = True
    """Whether trajectories that a limit ended train. False counts them in credit, where others are compared with them,
    and drops their tokens from the loss (DAPO's overlong filtering)."""
    grammar: Literal["none", "calls"] = "none"
    """"calls": what looks like a tool call is one, of a tool on offer and with arguments by its schema (extra
    `guided`)."""
    max_retries: int = Field(1, ge=0)
    """New attempts at a trajectory whose reward is Invalid for a reason that may pass."""
    max_invalid_share: float = Field(0.1, ge=0, le=1)
    """Share of a batch that may stay Invalid; more stops the run with the most common cause."""
    dynamic_sampling: DynamicSamplingSection = DynamicSamplingSection()
    """Replacing groups that teach nothing."""
    trajectory_timeout_s: float = Field(120.0, gt=0)
    """Wall time of one trajectory."""
