"""What every kind of training shares: the policy that learns, its optimizer and schedule, and what one step of learning
gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from transformers import PreTrainedModel

from turnwise.batching.collate import Packing
from turnwise.config.run import RunConfig
from turnwise.core.metrics import Metric
from turnwise.core.types import FloatArray, TrajectoryGroup
from turnwise.credit.assignment import Key
from turnwise.runs.accounting import Account
from turnwise.runs.build import System
from turnwise.training.optimizer import build_optimizer, compute_lr
from turnwise.training.state import Companion


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What one step of learning says."""

    metrics: dict[str, Metric]
    advantages: Mapping[Key, Sequence[FloatArray | None]] | None
    """Per turn of every trajectory that had credit, None for turns that never train; None where the algorithm computes
    none."""


def get_packing(config: RunConfig) -> Packing:
    """How the recipe's steps are cut into micro-batches."""
    return Packing(micro_batch_tokens=config.train.micro_batch_tokens, shared_prefix=config.train.shared_prefix)


class Learner(Protocol):
    """One way to learn from groups of trajectories."""

    companions: Mapping[str, Companion]
    """Models trained beside the policy, by the name of their checkpoint file."""

    def learn(
        self, groups: Sequence[TrajectoryGroup], step: int, greedy_rewards: Mapping[str, float], account: Account
    ) -> Learned:
        """Change the policy by the groups of RL step `step`. Raises TrainingError with the weights as they were.

        `account` is called once, before the policy's first optimizer step, with the samples of all of them.
        """
        ...

    def state_dict(self) -> dict[str, object]:
        """What is remembered between steps besides weights and moments, as JSON values."""
        ...

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` returned."""
        ...


class TrainedPolicy:
    """The policy, its optimizer, and where its learning-rate schedule stands."""

    def __init__(self, system: System) -> None:
        train = system.config.train
        self.config: RunConfig = system.config
        self.model: PreTrainedModel = system.model
        self.optimizer = build_optimizer(
            system.model, lr=train.lr, betas=(train.beta1, train.beta2), weight_decay=train.weight_decay
        )
        self.optimizer_steps = 0

    def next_lr(self) -> float:
        """The learning rate of the next optimizer step, which is counted as taken."""
        train, config = self.config.train, self.config
        per_step = {"policy_gradient": config.loss.updates_per_step, "rejection": config.rejection.passes}.get(
            train.algorithm, 1
        )
        lr = compute_lr(
            self.optimizer_steps,
            base=train.lr,
            warmup_steps=train.warmup_steps,
            total_steps=train.steps * per_step,
            decay=train.decay,
        )
        self.optimizer_steps += 1
        return lr
