"""What is learned from a batch: credit, loss, and the two kinds of training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.section import Section


class CreditSection(Section):
    """From rewards to advantages."""

    estimator: str = "grpo"
    """"grpo": the reward minus the group's mean, over its standard deviation. Or the import path "package.module:function"
    of your own: from the rewards of a group (None where Invalid) to as many advantages (None stays None)."""
    deviation: Literal["sample", "population", "none"] = "sample"
    """Which standard deviation divides: n-1, n, or none (Dr.GRPO)."""
    epsilon: float = Field(1e-6, ge=0)
    """Added to the standard deviation."""


class LossSection(Section):
    """From advantages to a gradient. The denominator is the number of trained tokens of the whole optimizer step."""

    clip_low: float = Field(0.2, ge=0, le=1)
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = Field(0.2, ge=0)
    """The ratio is clipped above at 1 + clip_high."""
    kl_coefficient: float = Field(0.0, ge=0)
    """Weight of the k3 divergence from the policy RL started from. 0: no reference is kept."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    mask_observations: bool = True
    """Observation tokens never train. False only reproduces Search-R1's ablation."""
    updates_per_step: int = Field(1, ge=1)
    """Optimizer steps per batch of rollouts; above 1 the later ones are off-policy."""


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


class TrainSection(Section):
    """Reinforcement learning."""

    steps: int = Field(60, ge=0)
    """RL steps; 0 stops after the warm-up."""
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
    micro_batch_tokens: int = Field(16384, ge=1)
    """Most tokens of one forward and backward pass; a smaller number needs less memory and changes nothing else."""
    checkpoint_every: int = Field(20, ge=0)
    """RL steps between checkpoints; 0 writes only the first and the last."""
    keep_checkpoints: int = Field(2, ge=1)
    """Latest checkpoints kept, besides the one RL started from."""
    num_threads: int = Field(0, ge=0)
    """Threads while training; 0 is all cores."""
