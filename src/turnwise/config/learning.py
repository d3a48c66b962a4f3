"""Options of the supervised warm-up and of the training that follows it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, field_validator

from turnwise.config.section import OneOf, Section
from turnwise.config.train_algorithms.policy_gradient import POLICY_GRADIENT
from turnwise.config.train_algorithms.table import ALGORITHMS

ADAMW = "adamw"
DECAYS = ("none", "linear", "cosine")


class SftSection(Section):
    """The supervised warm-up, on conversations of your own or on scripted demonstrations."""

    steps: int = Field(0, ge=0)
    """Optimizer steps; 0 skips the warm-up."""
    batch_size: int = Field(64, ge=1)
    """Conversations per step."""
    path: str = ""
    """JSONL or Parquet file of your own conversations, whose replies are imitated (docs/data.md); if empty,
    demonstrations are played. Conversations of more than `rollout.max_tokens` tokens are left out and counted."""
    heldout_path: str = ""
    """File of conversations that are never trained on: their loss is measured before the warm-up, ten times during it,
    and after it. For `path` only."""
    num_demonstrations: int = Field(4096, ge=1)
    """Number of demonstrations, each of a different task; every pass over them has a new order. Those of more
    than `rollout.max_tokens` tokens are counted when it starts. Ignored if `path` is set."""
    lr: float = Field(3e-3, gt=0)
    """Peak learning rate, which decays to 0 as a cosine. Required with `model.path`."""
    warmup_steps: int = Field(10, ge=0)
    """Optimizer steps over which the learning rate rises linearly."""
    policy: str = "naive"
    """Name of the family's scripted policy that demonstrates. Ignored if `path` is set."""


class TrainSection(Section):
    """The training after the warm-up."""

    algorithm: Annotated[str, OneOf(tuple(ALGORITHMS))] = POLICY_GRADIENT.name
    """"policy_gradient" is reinforcement learning with `credit` and `loss`. The others learn from the best samples,
    with `rejection` or `preference`, and ignore `credit` and `loss` except `loss.updates_per_step`."""
    steps: int = Field(60, ge=0)
    """RL steps; 0 stops after the warm-up."""
    parity_every: int = Field(20, ge=0)
    """RL steps between parity gates, in which sampler and trainer score the same tokens; there is always one before the
    first step."""
    lr: float = Field(1e-3, gt=0)
    """Peak learning rate. The default is for random weights; required with `model.path`."""
    warmup_steps: int = Field(5, ge=0)
    """Optimizer steps over which the learning rate rises linearly."""
    warmup_ratio: float = Field(0.0, ge=0, lt=1)
    """Share of all optimizer steps over which the learning rate rises, rounded up; above 0 it replaces
    `warmup_steps`."""
    decay: str = "linear"
    """Decay of the learning rate after its warm-up: "none", "linear", "cosine", or the import path
    "package.module:function" of your own function, which maps an optimizer step after the warm-up, counted from 0, and
    the number of steps after the warm-up to a factor of `lr`."""
    min_lr_ratio: float = Field(0.0, ge=0, le=1)
    """Share of `lr` at the end of the decay."""
    optimizer: str = "adamw"
    """"adamw", or the import path "package.module:build" of your own, such as "torch.optim:SGD", which maps parameter
    groups, `lr` and `optimizer_options` to a torch.optim.Optimizer whose state is tensors. It updates the policy, a
    critic and an implicit reward model (docs/extending.md)."""
    optimizer_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Further options for the optimizer, which rejects unknown ones; for "adamw" for example `eps`."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay, on matrices only."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay rate of AdamW's first moment."""
    beta2: float = Field(0.95, ge=0, lt=1)
    """Decay rate of AdamW's second moment."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Maximum gradient norm; a larger gradient is scaled down to it."""
    micro_batch_tokens: int = Field(0, ge=0)
    """Maximum number of tokens in one forward and backward pass; fewer need less memory, and gradients are the same up
    to rounding. 0 chooses the largest number up to 16384 that fits the machine's memory when a run starts, and writes
    it to the run's config.json."""
    shared_prefix: bool = True
    """Compute a common prefix of several trajectories (a tool prompt, a task, the turns before a branch) once, forward
    and backward. Gradients are the same up to rounding. False computes every trajectory separately."""
    recompute_activations: bool = False
    """Store only the input of every layer for the backward pass, which computes the layer again: less memory, one more
    forward pass, the same results."""
    checkpoint_every: int = Field(20, ge=0)
    """RL steps between checkpoints; 0 writes only the first and the last."""
    keep_checkpoints: int = Field(2, ge=1)
    """Number of latest checkpoints to keep, in addition to the one at the start of RL."""
    keep_best: int = Field(0, ge=0)
    """Number of additional checkpoints to keep for their success on the tasks of `evaluate.selection_tasks`. Above 0
    every evaluation of `evaluate.every` writes a checkpoint; `evaluate`, `ask` and `export` accept `--step best`."""
    patience: int = Field(0, ge=0)
    """Evaluations in a row that count by `patience_on` after which training ends early; 0 never does."""
    patience_on: Literal["decline", "plateau"] = "decline"
    """What counts: "decline", an evaluation worse than the best one before by more than chance (an exact paired test
    on the tasks of `evaluate.selection_tasks`); "plateau", one not better than the best before, chance included."""
    keep_every: int = Field(0, ge=0)
    """RL steps between milestones, which are checkpoints that are kept; 0 keeps none."""
    ranks: int = Field(1, ge=1)
    """Number of processes that train together, here or on a cluster, each with a shard of every model
    (docs/ranks.md)."""
    offload_to_cpu: bool = False
    """Keep each rank's shard of weights, gradients and moments in CPU memory, and load a layer to the GPU while it
    computes: more room on the GPU, slower steps. The results are the same up to rounding."""
    num_threads: int = Field(0, ge=0)
    """Threads for training, per rank; 0 is all cores, or each rank's share of them."""

    @field_validator("decay")
    @classmethod
    def _check_decay(cls, value: str) -> str:
        if value in DECAYS or ":" in value:
            return value
        raise ValueError("it must be 'none', 'linear' or 'cosine', or an import path such as 'package.module:function'")

    @field_validator("optimizer")
    @classmethod
    def _check_optimizer(cls, value: str) -> str:
        if value == ADAMW or ":" in value:
            return value
        raise ValueError("it must be 'adamw', or an import path 'package.module:build' (such as 'torch.optim:SGD')")
