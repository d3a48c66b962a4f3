"""Options of the policy loss and of the terms added to it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class CorrectionSection(Section):
    """Importance weights (old / behavior) that correct the difference between sampler and trainer."""

    mode: Literal["auto", "none", "truncate", "mask", "reject", "second_moment"] = "auto"
    """"auto" is "none" in synchronous training, and with schedule.max_staleness above 0 whatever suits the loss; the
    run prints the choice. "truncate" bounds the weight, "mask" weights inside the bounds and drops the rest, "reject"
    drops the rest and uses weight 1. "second_moment" drops the tokens with the largest ratios until the remaining ones
    agree well enough (M2PO), as set by `max_second_moment`. A trajectory that is
    dropped stays in credit, where others are compared with it."""
    level: Literal["token", "sequence", "geometric"] = "token"
    """Ratio per token, per sequence, or a sequence's geometric mean per token."""
    low: float = Field(0.0, ge=0)
    """Smallest ratio."""
    high: float = Field(2.0, ge=0)
    """Largest ratio."""
    veto: float = Field(0.0, ge=0)
    """Drop a sequence if the ratio of any of its tokens is below this; 0 drops none."""
    max_second_moment: float = Field(0.04, gt=0)
    """"second_moment": largest mean square of the log-ratios of the kept tokens."""


class KLSection(Section):
    """Penalty on the divergence from the policy that RL started from."""

    coefficient: float = Field(0.0, ge=0)
    """Weight; with 0 there is no reference policy. With a `target`, the weight in the first step."""
    target: float = Field(0.0, ge=0)
    """Divergence that an adaptive coefficient aims for, in nats per trained token; 0 keeps the coefficient constant."""
    horizon: float = Field(10000.0, gt=0)
    """Number of trained sequences over which the coefficient adapts; fewer is faster."""
    kind: Literal["k1", "k2", "k3", "k3_weighted", "k3_with_k2_gradient"] = "k3"
    """The estimator, as defined in `algorithms/kl.py`."""
    place: Literal["loss", "reward"] = "loss"
    """"loss" adds a term to the policy loss. "reward" subtracts a penalty per sampled token from the return from that
    token on; k1 only."""


class TeacherSection(Section):
    """On-policy distillation: a stronger policy scores the tokens that the student sampled."""

    path: str = ""
    """Local Hugging Face directory of a model with the student's vocabulary, such as a checkpoint, or a name from
    `turnwise models list`; empty is off."""
    coefficient: float = Field(1.0, gt=0)
    """Weight of the teacher's term."""
    kind: Literal["sampled", "exact"] = "sampled"
    """"sampled" adds teacher minus student log-probability to the advantages. "exact" adds the reverse KL over the
    vocabulary to the loss."""
    replace_credit: bool = False
    """Learn only from the teacher: set the credit method's advantages to 0."""


class LossSection(Section):
    """The policy loss; `turnwise algorithms` lists them. Denominators count the whole optimizer step."""

    method: str = "ppo"
    """Name of a loss, one provided by an installed package, or the import path "package.module:NAME" of your own, a
    function that maps LossInputs and options to LossOutput, or its row, a LossMethod (docs/extending.md); it is tried
    on three tokens before anything trains."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the method, which refuses unknown ones."""
    aggregation: Literal[
        "", "token_mean", "sequence_mean", "sequence_sum", "prompt_mean", "trajectory_mean", "constant"
    ] = ""
    """How per-token losses are reduced to one number; empty means the method's default (token_mean for your own
    method)."""
    constant: int = Field(0, ge=0)
    """Divisor for the aggregation "constant", in tokens; 0 means rollout.max_tokens."""
    rejected: Literal["in", "out"] = "in"
    """Whether tokens dropped by a correction count in the denominators ("in") or not ("out")."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus. With an `entropy_target`, the weight in the first step."""
    entropy_target: float = Field(0.0, ge=0)
    """Entropy, in nats per trained token, below which the coefficient grows and above which it falls; 0 keeps it
    constant."""
    entropy_step: float = Field(0.005, gt=0)
    """Change of an adaptive coefficient per step."""
    max_entropy_coefficient: float = Field(1.0, gt=0)
    """Largest value of an adaptive coefficient; the smallest is 0."""
    max_drift: float = Field(0.0, ge=0)
    """Off-policy sequence masking: tokens with negative advantage do not train if their sequence has lost more than
    this since it was sampled, on average in nats per token; 0 is off."""
    recompute_old: bool | Literal["auto"] = "auto"
    """True: the trainer scores the sampled tokens before the step, and ratios are relative to these scores. False:
    relative to the sampler's own scores. "auto" is false in synchronous training, and with schedule.max_staleness above
    0 whatever suits the loss; the run prints the choice."""
    mask_observations: bool = True
    """Leave observation tokens out of the loss. False only reproduces Search-R1's ablation."""
    updates_per_step: int = Field(1, ge=1)
    """Optimizer steps per batch of rollouts, each on a different part of it; all but the first are off-policy.
    Rejection sampling takes this many in each of its passes."""
    epochs: int = Field(1, ge=1)
    """Passes over a batch of rollouts (PPO's epochs), each in `updates_per_step` optimizer steps on newly drawn parts.
    Ratios remain relative to the sampling weights, or with `recompute_old` to those before the first pass. Policy
    gradient only; rejection sampling has `rejection.passes`."""
    correction: CorrectionSection = CorrectionSection()
    """Importance correction; off in synchronous training."""
    kl: KLSection = KLSection()
    """Penalty on the divergence from the policy RL started from; off."""
    teacher: TeacherSection = TeacherSection()
    """On-policy distillation; off."""
