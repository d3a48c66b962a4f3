"""Which models a run holds, decided once: what builds a run and what plans its memory both read it here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from turnwise.config.roles import find_binding, list_learners
from turnwise.config.run import RunConfig
from turnwise.config.train_algorithms.table import find_algorithm

MAX_PAST = 4
"""Snapshots of a run in memory at once that play a role. A reply of one more waits until one of them is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The models of a run besides the policy, and the copies that are made of weights and moments."""

    num_learners: int = 1
    """Policies that learn, each with the reference, the moments and the engine that the recipe asks for."""
    is_adapted: bool = False
    """Whether an adapter is trained: then copies of the policy share its frozen weights in one process."""
    has_served: bool = False
    """Whether engines sample from a copy of the policy, so that rollouts go on while the trainer steps."""
    has_reference: bool = False
    """Whether a frozen copy of the policy that RL starts from is kept."""
    learns_rewards: bool = False
    """Whether an implicit reward model, which starts as a copy of the policy, is trained."""
    critic: Literal["none", "head", "separate"] = "none"
    teacher: str = ""
    """Where the teacher is; empty is none."""
    frozen: tuple[str, ...] = ()
    """Where models of roles are that do not learn; each has an engine."""
    num_past: int = 0
    """Snapshots of the run that play a role, at most; each has an engine."""
    steps_back: bool = False
    """Whether a step keeps the weights and moments that policy and critic had before it: where it has several
    updates."""
    steps_rewards_back: bool = False
    """Whether a step keeps those of the implicit reward model."""


def list_copies(config: RunConfig, *, needs: Collection[str] = ()) -> Copies:
    """The copies of a training run.

    `needs` is what the recipe's credit method reads (`CreditMethod.needs`); `building.resolved` knows it.
    """
    train, loss, critic = config.train, config.loss, config.critic
    algorithm = find_algorithm(train.algorithm)
    learns_rewards = algorithm.has_credit and "implicit_rewards" in needs
    bindings = [find_binding(config.roles, role) for role in config.roles]
    num_learners = 1 + len(list_learners(config.roles))
    kind = critic.kind if algorithm.has_credit else "none"
    num_updates = algorithm.steps_per_batch(loss, config.rejection)
    num_updates += critic.epochs if kind == "separate" else 0
    return Copies(
        num_learners=num_learners,
        is_adapted=config.model.lora is not None,
        has_served=config.schedule.max_staleness > 0,
        has_reference=algorithm.needs_reference
        or (algorithm.has_credit and (loss.kl.coefficient > 0 or learns_rewards)),
        learns_rewards=learns_rewards,
        critic=kind,
        teacher=loss.teacher.path if algorithm.has_credit else "",
        frozen=tuple(dict.fromkeys(each.value for each in bindings if each.kind == "frozen")),
        num_past=MAX_PAST if any(each.kind == "past" for each in bindings) else 0,
        steps_back=num_updates > 1,
        steps_rewards_back=learns_rewards,
    )
