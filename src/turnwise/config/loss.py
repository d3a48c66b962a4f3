"""Options of the policy loss and of the terms added to it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class CorrectionSection(Section):
    """Importance weights (old / behavior) that correct the difference between sampler and trainer."""

    mode: Literal["auto", "none", "truncate", "mask", "reject", "second_moment"] = "auto"
    """"auto" is "none" in synchronous training, and with schedule.max_staleness above 0 what suits the loss; the run
    prints the choice. "truncate" bounds the weight, "mask" weighs inside the bounds and drops the rest, "reject" drops
    the rest and weighs 1. "second_moment" drops the tokens with the largest ratios until those left agree well
    enough (M2PO), as `max_second_moment` says. A trajectory that is dropped stays in credit, where others are compared
    with it."""
    level: Literal["token", "sequence", "geometric"] = "token"
    """Ratio of a token, of a sequence, or of a sequence's geometric mean per token."""
    low: float = Field(0.0, ge=0)
    """Smallest ratio."""
    high: float = Field(2.0, ge=0)
    """Largest ratio."""
    veto: float = Field(0.0, ge=0)
    """Drop a sequence if the ratio of any of its tokens is below this; 0 drops none."""
    max_second_moment: float = Field(0.04, gt=0)
    """"second_moment": largest mean square of the log-ratios of the tokens that are kept."""


class KLSection(Section):
    """Penalty on the divergence from the policy that RL started from."""

    coefficient: float = Field(0.0, ge=0)
    """Weight; 0 keeps no reference policy. With a `target`, the weight of the first step."""
    target: float = Field(0.0, ge=0)
    """Divergence, in nats per trained token, that an adaptive coefficient holds; 0 keeps the coefficient constant."""
    horizon: float = Field(10000.0, gt=0)
    """Number of trained sequences over which the coefficient adapts; fewer is faster."""
    kind: Literal["k1", "k2", "k3", "k3_weighted", "k3_with_k2_gradient"] = "k3"
    """The estimator, as defined in `algorithms/kl.py`."""
    place: Literal["loss", "reward"] = "loss"
    """"loss" adds a term to the policy loss. "reward" adds a penalty per sampled token to the return from that token
    on; k1 only."""


class TeacherSection(Section):
    """On-policy distillation: a stronger policy scores the tokens that the student sampled."""

    path: str = ""
    """Local Hugging Face directory of a model with the student's vocabulary, such as a checkpoint, or a name of
    `turnwise models list`; empty is off."""
    coefficient: float = Field(1.0, gt=0)
    """Weight of the teacher's term."""
    kind: Literal["sampled", "exact"] = "sampled"
    """"sampled" adds teacher minus student log-probability to the advantages. "exact" adds the reverse KL over the
    vocabulary to the loss."""
    replace_credit: bool = False
    """Learn from the teacher alone: set the credit method's advantages to 0."""


class LossSection(Section):
    """The policy loss; `turnwise algorithms` lists them. Denominators count the whole optimizer step."""

    method: str = "ppo"
    """Name of a loss, one that an installed package offers, or the import path "package.module:NAME" of your own, a
    function that maps LossInputs and options to LossOutput, or its row, a LossMethod (docs/extending.md); it is tried
    on three tokens before anything trains."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the method, which refuses unknown ones."""
    aggregation: Literal[
        "", "token_mean", "sequence_mean", "sequence_sum", "prompt_mean", "trajectory_mean", "constant"
    ] = ""
    """How per-token losses become one number; empty takes the method's own (token_mean for a method of yours)."""
    constant: int = Field(0, ge=0)
    """Divisor of the aggregation "constant", in tokens; 0 takes rollout.max_tokens."""
    rejected: Literal["in", "out"] = "in"
    """Whether tokens that a correction dropped count in ("in") or not in ("out") the denominators."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus. With an `entropy_target`, the weight of the first step."""
    entropy_target: float = Field(0.0, ge=0)
    """Entropy, in nats per trained token, below which the coefficient grows and above which it falls; 0 keeps it
    constant."""
    entropy_step: float = Field(0.005, gt=0)
    """Change of an adaptive coefficient per step."""
    max_entropy_coefficient: float = Field(1.0, gt=0)
    """Largest value of an adaptive coefficient; the smallest is 0."""
    max_drift: float = Field(0.0, ge=0)
    """Off-policy sequence masking: bad sequences whose tokens have lost more than this, in nats per token since they
    were sampled, do not train; 0 is off."""
    recompute_old: bool | Literal["auto"] = "auto"
    """True: the trainer scores the sampled tokens before the step, and ratios are taken to that. False: to the
    sampler's own scores. "auto" is false in synchronous training, and with schedule.max_staleness above 0 what suits
    the loss; the run prints the choice."""
    mask_observations: bool = True
    """Leave observation tokens out of the loss. False only reproduces Search-R1's ablation."""
    updates_per_step: int = Field(1, ge=1)
    """Optimizer steps per batch of rollouts, each on another part of it; all but the first are off-policy. Rejection
    sampling takes as many in each of its passes."""
    epochs: int = Field(1, ge=1)
    """Passes over a batch of rollouts (PPO's epochs), each in `updates_per_step` optimizer steps on parts that are cut
    anew. Ratios stay those to the weights that sampled, or with `recompute_old` to those before the first pass. Policy
    gradient only; rejection sampling has `rejection.passes`."""
    correction: CorrectionSection = CorrectionSection()
    """Importance correction; off in synchronous training."""
    kl: KLSection = KLSection()
    """Penalty on the divergence from the policy RL started from; off."""
    teacher: TeacherSection = TeacherSection()
    """On-policy distillation; off."""
