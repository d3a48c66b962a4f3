"""The two kinds of training: the supervised warm-up, and what follows it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class SftSection(Section):
    """The supervised warm-up on scripted demonstrations."""

    steps: int = Field(0, ge=0)
    """Optimizer steps; 0 skips the warm-up."""
    batch_size: int = Field(64, ge=1)
    """Demonstrations per step."""
    num_demonstrations: int = Field(4096, ge=1)
    """Different demonstrations, each of a task of its own; every pass over them has a new order."""
    lr: float = Field(3e-3, gt=0)
    """Peak learning rate; cosine decay to 0."""
    warmup_steps: int = Field(10, ge=0)
    """Linear warm-up."""
    policy: str = "naive"
    """Which of the family's scripted policies demonstrates."""


class RejectionSection(Section):
    """Rejection sampling, for train.algorithm = "rejection": keep the best of each group, fine-tune on them, sample
    again."""

    num_kept: int = Field(1, ge=1)
    """Most trajectories kept of a group, the best first."""
    first_threshold: float = 1.0
    """Reward a trajectory needs to be kept, in the first pass over a batch."""
    last_threshold: float = 1.0
    """The same in the last pass; in between the bar rises evenly (ReST)."""
    passes: int = Field(1, ge=1)
    """Optimizer steps per batch of rollouts, each on the trajectories above its own bar."""


class PreferenceSection(Section):
    """Pairs mined from groups, for train.algorithm = "dpo" (whole attempts) and "step_dpo" (the step in which two
    attempts part)."""

    beta: float = Field(0.1, gt=0)
    """How strongly the policy is tied to the one training started from."""
    kind: Literal["sigmoid", "ipo"] = "sigmoid"
    """The pair loss: DPO's, or IPO's; step_dpo has "sigmoid" only."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Probability that a pair is the wrong way round; "sigmoid" and dpo only."""
    min_margin: float = Field(0.5, gt=0)
    """Smallest difference in reward that makes a pair."""
    max_pairs: int = Field(1, ge=1)
    """Most pairs of whole attempts mined from one group."""


class TrainSection(Section):
    """What follows the warm-up."""

    algorithm: Literal["policy_gradient", "rejection", "dpo", "step_dpo"] = "policy_gradient"
    """"policy_gradient" is reinforcement learning by `credit` and `loss`; the others learn from the best of what was
    sampled, by `rejection` or `preference`, and read neither."""
    steps: int = Field(60, ge=0)
    """RL steps; 0 stops after the warm-up."""
    parity_every: int = Field(20, ge=0)
    """RL steps between parity gates (sampler and trainer score the same tokens); one stands before the first step in
    any case."""
    lr: float = Field(1e-3, gt=0)
    """Peak learning rate."""
    warmup_steps: int = Field(5, ge=0)
    """Linear warm-up, in optimizer steps."""
    decay: Literal["none", "linear", "cosine"] = "linear"
    """Of the learning rate after the warm-up."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's, on matrices only."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's first moment."""
    beta2: float = Field(0.95, ge=0, lt=1)
    """AdamW's second moment."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients with a larger norm are scaled down to it."""
    micro_batch_tokens: int = Field(0, ge=0)
    """Most tokens computed in one forward and backward pass; fewer need less memory, and gradients are the same up to
    rounding. 0 chooses the largest number up to 16384 that fits the machine's memory when a run starts, and writes it
    to the run's config.json."""
    shared_prefix: bool = True
    """What several trajectories begin with (a tool prompt, a task, the turns before a branch) is computed once, forward
    and backward. Gradients are the same up to rounding. False computes every trajectory by itself."""
    checkpoint_every: int = Field(20, ge=0)
    """RL steps between checkpoints; 0 writes only the first and the last."""
    keep_checkpoints: int = Field(2, ge=1)
    """Latest checkpoints kept, besides the one RL started from."""
    num_threads: int = Field(0, ge=0)
    """Threads while training; 0 is all cores."""
