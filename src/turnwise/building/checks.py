"""Whether what a recipe combines can work: checked before anything is built that costs."""

from __future__ import annotations

from turnwise.algorithms.credit import CreditMethod
from turnwise.building.families import build_family
from turnwise.building.objectives import build_policy_loss
from turnwise.building.optimizers import check_optimizer
from turnwise.building.resolved import Resolved, resolve
from turnwise.config.run import RunConfig
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import ForkableEnvironment, GoldAnswers
from turnwise.environments.mixture import list_families


def check_methods(config: RunConfig) -> RunConfig:
    """The recipe with the canonical names of its credit method and loss; raises as `check_recipe`."""
    return check_recipe(config).config


def check_recipe(config: RunConfig) -> Resolved:
    """What the recipe means.

    Raises ConfigError with the reason when credit, critic, loss, group and environment do not fit together, or the
    optimizer cannot be used."""
    check_optimizer(config)
    resolved = resolve(config)
    if resolved.credit is not None:
        method = resolved.credit.method
        resolved.build_credit()
        check_rewards(resolved, method)
        build_policy_loss(resolved)
        check_groups(resolved.config, method)
        check_environment(resolved, method)
    return resolved


def check_groups(config: RunConfig, method: CreditMethod) -> None:
    """Raise ConfigError when credit compares what the rollouts do not give."""
    rollout = config.rollout
    if config.train.steps > 0 and method.compares == "group" and rollout.group_size < 2:
        raise ConfigError(
            f"credit.method={method.name!r} compares the members of a group, and "
            f"rollout.group_size={rollout.group_size} leaves nothing to compare; use at least 2"
        )
    if method.compares == "leaves" and not rollout.train_truncated:
        raise ConfigError(
            f"rollout.train_truncated=false drops whole trajectories, but credit.method={method.name!r} trains "
            "branches that each end separately; set it to true"
        )
    if method.compares == "leaves" and rollout.train_members:
        raise ConfigError(
            f"rollout.train_members={rollout.train_members} drops whole trajectories, but "
            f"credit.method={method.name!r} trains branches that each end separately; use 0"
        )


def check_rewards(resolved: Resolved, method: CreditMethod) -> None:
    """Raise ConfigError where `[rewards]` meets attempts that it does not score: forked futures, a greedy baseline."""
    if not resolved.rewards:
        return
    names = ", ".join(f"rewards.{name}" for name in resolved.rewards)
    if resolved.branches != "none" or resolved.needs_baseline:
        other = "a greedy attempt" if resolved.needs_baseline else "several futures of an attempt"
        raise ConfigError(
            f"credit.method={method.name!r} compares with {other}, which {names} would not score; choose another "
            "method, or leave [rewards] out"
        )


def check_environment(resolved: Resolved, method: CreditMethod) -> None:
    """Raise ConfigError when credit asks for what the environment cannot do, or for one sum of penalties where several
    futures share a past."""
    config = resolved.config
    for family in list_families(build_family(config)) if resolved.branches != "none" else ():
        environment = family.build_environment(family.task("train", 0))
        if not isinstance(environment, ForkableEnvironment):
            raise ConfigError(
                f"credit.method={method.name!r} samples several futures from one state, but "
                f"{type(environment).__name__} of environment.name={config.environment.name!r} cannot fork; define "
                "`async def fork(self)` on it, or choose another method"
            )
    for family in list_families(build_family(config)) if resolved.annotators else ():
        environment = family.build_environment(family.task("train", 0))
        if isinstance(environment, AskingEnvironment):
            raise ConfigError(
                f"credit.method={method.name!r} with the annotators {' and '.join(resolved.annotators)} measures one "
                f"conversation, but {type(environment).__name__} of environment.name={config.environment.name!r} has "
                "several; choose another method, or leave the annotators out"
            )
    if method.compares == "leaves" and resolved.penalty > 0:
        raise ConfigError(
            f"credit.method={method.name!r} with loss.kl.place='reward': a turn before a fork has several futures, so "
            "its future penalties have no single sum; use loss.kl.place='loss'"
        )
    needs_answers = any(kind.needs_gold_answers for kind in resolved.annotators.values())
    if needs_answers and not isinstance(build_family(config), GoldAnswers):
        raise ConfigError(
            f"credit.method={method.name!r} scores the right answer after every turn, but "
            f"environment.name={config.environment.name!r} does not define it; add `gold_answer` and `answer_reply` to "
            "its family, or choose another method"
        )
