"""What a learner passes to a trainer and what the trainer returns: numbers only, so that either can run in another
process.

Every token column has one float array per sample, `[K_i]` over the sample's trained tokens (`loss_mask`), in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from numpy.typing import NDArray

from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Metric
from turnwise.core.types import BoolArray, DropReason, FloatArray, Sample, TrajectoryId

Column = tuple[NDArray[Any], ...]
"""One array per sample, `[K_i]` over its trained tokens."""

Wanted = Literal[
    "policy_logprobs",
    "old_logprobs",
    "reference_logprobs",
    "teacher_logprobs",
    "values",
    "implicit_rewards",
    "squared_mass",
    "policy_entropy",
    "self_certainty",
]
"""What `Trainer.score` can compute."""

Objective = Literal["policy_gradient", "supervised", "preference", "warmup", "cpt"]
"""What an optimizer step minimises; "warmup" and "cpt" (continual pre-training, before it) are supervised, each with an
optimizer and a schedule of its own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Per-token numbers for a batch of samples; None where they were not computed."""

    policy_logprobs: Column | None = None
    """Log-probabilities under the current policy."""
    old_logprobs: Column | None = None
    """Log-probabilities under the policy before the step, the denominator of ratios. None: the sampler's own are
    used."""
    reference_logprobs: Column | None = None
    """Log-probabilities under the policy that RL started from."""
    teacher_logprobs: Column | None = None
    values: Column | None = None
    """The critic's value of the state before each token, before the step."""
    returns: Column | None = None
    """The critic's targets; NaN at tokens without a target."""
    implicit_rewards: Column | None = None
    """Rewards from the implicit process reward model."""
    squared_mass: Column | None = None
    """Sum of squared probabilities over the vocabulary."""
    policy_entropy: Column | None = None
    """Entropy of the current policy's distribution over the vocabulary, in nats."""
    self_certainty: Column | None = None
    """Divergence KL(U || p) of the uniform distribution from the current policy's, in nats."""
    final_values: tuple[float, ...] | None = None
    """The critic's value after the last token, one per sample."""

    def select(self, indices: Sequence[int]) -> Columns:
        """The columns of some samples, in the order of `indices`."""
        chosen = {
            each.name: tuple(column[i] for i in indices)
            for each in fields(self)
            if (column := getattr(self, each.name)) is not None
        }
        return replace(self, **chosen)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A preferred and a rejected attempt, as indices of samples."""

    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    chosen_in_step: tuple[BoolArray, ...]
    """Per sample of `chosen`, `[K_i]`: which trained tokens belong to the step that is judged."""
    rejected_in_step: tuple[BoolArray, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingBatch:
    """Everything that one RL step trains on."""

    step: int
    """RL step, for messages and seeds."""
    objective: Objective
    samples: tuple[Sample, ...]
    columns: Columns = Columns()
    updates: tuple[tuple[int, ...], ...] = ()
    """Indices of samples per optimizer step; an empty one counts as a step of the schedule and changes nothing. A
    warm-up without updates only measures its samples, as held-out ones."""
    pairs: tuple[Pair, ...] = ()
    """Pairs for the objective "preference"; its one optimizer step trains on all of them."""
    kl_coefficient: float | None = None
    """Weight of the divergence from the reference in the loss; None: the recipe's."""
    entropy_coefficient: float | None = None
    """Weight of the entropy bonus; None: the recipe's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A decision not to train on some tokens."""

    trajectory: TrajectoryId
    reason: DropReason
    turns: tuple[int, ...] | None = None
    """Indices of the dropped turns; None: the whole trajectory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """What a learner decided about the groups of one step."""

    batch: TrainingBatch
    drops: tuple[Drop, ...]
    """Why scored trajectories or turns are not trained."""
    advantages: Mapping[TrajectoryId, Sequence[FloatArray | None]] | None
    """Advantages per turn for every trajectory with credit, None for turns that never train; None where the algorithm
    has no advantages."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)


class NothingToTrain(TrainingError):
    """No trajectory of a learner's groups has a token that may train."""

    def __init__(self, text: str, assignment: Assignment) -> None:
        """`assignment` is what the learner decided: its batch is empty, and its advantages are those of a step."""
        super().__init__(text)
        self.assignment = assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What a trainer reports after a step."""

    metrics: Mapping[str, Metric]
    optimizer_steps: int
    """Optimizer steps that the RL optimizer has taken so far."""
    sums: Mapping[str, int]
    """One checksum per parameter tensor of the policy, after the step (see `models.checksums`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the engines report after a publication."""

    version: int
    sums: Mapping[str, int]
    """One checksum per parameter tensor that the engine samples with, computed on the engine's side."""
    seconds: float
    num_restarted: int = 0
    """Sampled tokens of unfinished replies that were thrown away (`schedule.interrupt = "restart"`)."""
