"""Which models a run holds, decided once: what builds a run and what plans its memory both read it here."""

from __future__ import annotations

from collections.abc import Collection

from turnwise.config.roles import find_binding, list_learners
from turnwise.config.run import RunConfig
from turnwise.config.train_algorithms.table import find_algorithm
from turnwise.forecast.copies import Copies
from turnwise.judging.table import list_checkpoints
from turnwise.rollout.past import MAX_PAST


def list_copies(config: RunConfig, *, needs: Collection[str] = ()) -> Copies:
    """The copies of a training run.

    `needs` is what the recipe's credit method reads (`CreditMethod.needs`); `resolve` knows it.
    """
    train, loss, critic = config.train, config.loss, config.critic
    algorithm = find_algorithm(train.algorithm)
    learns_rewards = algorithm.has_credit and "implicit_rewards" in needs
    bindings = [find_binding(config.roles, role) for role in config.roles]
    frozen = [each.value for each in bindings if each.kind == "frozen"]
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
        frozen=tuple(dict.fromkeys([*frozen, *list_checkpoints(config.judges)])),
        num_past=MAX_PAST if any(each.kind == "past" for each in bindings) else 0,
        steps_back=num_updates > 1,
        steps_rewards_back=learns_rewards,
    )
