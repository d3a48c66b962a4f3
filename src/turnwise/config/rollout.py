"""Options of sampling trajectories, and their limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class DynamicSamplingSection(Section):
    """Replace groups that give no gradient by further ones (DAPO; by task value: VSPO)."""

    metric: str = ""
    """Quantity that must vary among the members of a group for it to count: "reward", or a part of the reward such as
    "success". Empty switches this off."""
    max_batches: int = Field(3, ge=1)
    """Maximum number of batches of rollout.tasks_per_step groups per step, including the first."""
    refill: Literal["new", "value"] = "new"
    """"new" draws further tasks. "value" samples tasks of the same step again, drawn in proportion to
    (max_reward - mean reward) * standard deviation."""
    max_reward: float = 1.0
    """The highest possible reward; only used by "value"."""


class RolloutSection(Section):
    """Rollouts: one RL step samples `tasks_per_step * group_size` trajectories."""

    tasks_per_step: int = Field(32, ge=1)
    """Tasks per RL step."""
    group_size: int = Field(8, ge=1)
    """Trajectories per task."""
    train_members: int = Field(0, ge=0)
    """Members of a group that train: the first ones. The others count in rewards and credit, where members are compared
    (TTRL lets 64 vote and trains 32), and their tokens are left out of the loss. 0 trains all."""
    max_turns: int = Field(4, ge=1)
    """Maximum number of replies per trajectory."""
    max_turn_tokens: int = Field(64, ge=1)
    """Maximum number of sampled tokens per reply."""
    max_tokens: int = Field(512, ge=2)
    """Maximum number of tokens per trajectory: prompt, replies, observations."""
    temperature: float = Field(1.0, gt=0)
    """Temperature for training rollouts and for the trainer's scores. Training samples from the whole distribution."""
    train_truncated: bool = True
    """Whether to train trajectories that were ended by a limit. False keeps them in credit, where others are compared
    with them, and leaves their tokens out of the loss (DAPO's overlong filtering); rejection sampling keeps none of
    them."""
    grammar: Literal["none", "calls"] = "none"
    """"calls" samples only well-formed tool calls: to an existing tool, with arguments that match its schema (extra
    `guided`)."""
    max_open: int = Field(0, ge=0)
    """Maximum number of open trajectories, including those waiting for a tool; 0 is engine.max_concurrency. Those
    that a judge is reading do not count, except with rollout.num_workers."""
    num_workers: int = Field(0, ge=0)
    """Number of processes that play trajectories, each with its own environments, sandboxes and engine, and its share
    of engine.max_concurrency; 0 plays them in the run's own process. The samples are the same."""
    max_retries: int = Field(1, ge=0)
    """Maximum number of retries for a trajectory whose reward is Invalid and retryable."""
    max_invalid_share: float = Field(0.1, ge=0, le=1)
    """Maximum share of a batch that may stay Invalid; a larger share stops the run and names the most common cause."""
    dynamic_sampling: DynamicSamplingSection = DynamicSamplingSection()
    """Replace groups that give no gradient; off."""
    trajectory_timeout_s: float = Field(120.0, gt=0)
    """Maximum wall time of one trajectory in seconds."""
