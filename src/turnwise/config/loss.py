"""From advantages to a gradient: the policy loss and the terms beside it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class CorrectionSection(Section):
    """Importance correction of the difference between sampler and trainer (old / behavior)."""

    mode: Literal["auto", "none", "truncate", "mask", "reject", "second_moment"] = "auto"
    """"auto" is "none" in synchronous training, and with schedule.max_staleness above 0 what suits the loss; the run
    prints the choice. "truncate" bounds the weight, "mask" weighs inside the bounds and drops the rest, "reject" drops
    the rest and weighs 1. "second_moment" drops the tokens with the largest ratios until those left agree well enough (M2PO), as
    `max_second_moment` says."""
    level: Literal["token", "sequence", "geometric"] = "token"
    """Ratio of a token, of a sequence, or its geometric mean per token."""
    low: float = Field(0.0, ge=0)
    """Smallest ratio."""
    high: float = Field(2.0, ge=0)
    """Largest ratio."""
    veto: float = Field(0.0, ge=0)
    """Drop a sequence with any token's ratio below this; 0 does not."""
    max_second_moment: float = Field(0.04, gt=0)
    """"second_moment": largest mean square of the log-ratios of the tokens that are kept."""


class KLSection(Section):
    """Divergence from the policy that RL started from."""

    coefficient: float = Field(0.0, ge=0)
    """Weight; 0 keeps no reference. Where it adapts, the weight of the first step."""
    target: float = Field(0.0, ge=0)
    """Divergence in nats per trained token that the coefficient is moved to hold; 0 leaves the coefficient as it is."""
    horizon: float = Field(10000.0, gt=0)
    """How many trained sequences the coefficient takes to follow; smaller is faster."""
    kind: Literal["k1", "k2", "k3", "k3_weighted", "k3_with_k2_gradient"] = "k3"
    """The estimator; `algorithms/kl.py` says what each is."""
    place: Literal["loss", "reward"] = "loss"
    """"loss": a term beside the policy loss. "reward": a penalty per sampled token, summed from each token on; k1
    only."""


class TeacherSection(Section):
    """On-policy distillation: a stronger policy judges the tokens the student sampled."""

    path: str = ""
    """Local Hugging Face directory with the student's vocabulary, such as a run's checkpoint; empty is off."""
    coefficient: float = Field(1.0, gt=0)
    """Weight of the teacher beside the credit."""
    kind: Literal["sampled", "exact"] = "sampled"
    """"sampled": teacher minus student log-probability added to the advantages. "exact": the reverse KL over the
    vocabulary as a loss."""
    replace_credit: bool = False
    """Learn from the teacher alone: the credit method's advantages count 0."""


class LossSection(Section):
    """The policy loss; `turnwise algorithms` lists them all. Denominators count the whole optimizer step."""

    method: str = "ppo"
    """A name from the table, or the import path "package.module:function" of your own: from LossInputs and options to
    LossOutput."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table of the method's options; it refuses what it does not know."""
    aggregation: Literal[
        "", "token_mean", "sequence_mean", "sequence_sum", "prompt_mean", "trajectory_mean", "constant"
    ] = ""
    """How per-token losses become one number; empty is the method's own (token_mean for one of yours)."""
    constant: int = Field(0, ge=0)
    """Divisor of the aggregation "constant", in tokens; 0 is rollout.max_tokens."""
    rejected: Literal["in", "out"] = "in"
    """Whether tokens a correction dropped count in the denominators."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus. Where it adapts, the weight of the first step."""
    entropy_target: float = Field(0.0, ge=0)
    """Entropy in nats per trained token below which the coefficient grows and above which it falls; 0 leaves it as it
    is."""
    entropy_step: float = Field(0.005, gt=0)
    """How far an adaptive coefficient moves per step."""
    max_entropy_coefficient: float = Field(1.0, gt=0)
    """An adaptive coefficient stays between 0 and this."""
    max_drift: float = Field(0.0, ge=0)
    """Off-policy sequence masking: bad sequences whose tokens have lost more than this, in nats per token since they
    were sampled, do not train; 0 is off."""
    recompute_old: bool | Literal["auto"] = "auto"
    """True: the trainer scores the sampled tokens before the step, and ratios are taken to that. False: to the
    sampler's own scores. "auto" is false in synchronous training, and with schedule.max_staleness above 0 what suits
    the loss; the run prints the choice."""
    mask_observations: bool = True
    """Observation tokens never train. False only reproduces Search-R1's ablation."""
    updates_per_step: int = Field(1, ge=1)
    """Optimizer steps per batch of rollouts; above 1 the later ones are off-policy."""
    correction: CorrectionSection = CorrectionSection()
    """Importance correction; off in synchronous training."""
    kl: KLSection = KLSection()
    """Tie to the policy RL started from; off."""
    teacher: TeacherSection = TeacherSection()
    """On-policy distillation; off."""
