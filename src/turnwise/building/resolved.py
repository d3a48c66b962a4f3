"""What a recipe means, worked out once: rows instead of names, and nothing left to choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnwise.algorithms.credit import Branches
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.credit_table import CREDIT_METHODS
from turnwise.algorithms.losses.table import LOSSES
from turnwise.building.copies import list_copies
from turnwise.building.correction import ResolvedCorrection, resolve_correction
from turnwise.building.credit import RecipeCredit, check_critic, find_credit, read_penalty
from turnwise.building.curriculum import build_curriculum
from turnwise.building.losses import RecipeLoss, find_loss
from turnwise.config.engine_kinds.kind import EngineKind
from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.resolve import check_engine_fits
from turnwise.config.run import RunConfig
from turnwise.config.train_algorithms.algorithm import Algorithm
from turnwise.config.train_algorithms.table import find_algorithm
from turnwise.core.errors import ConfigError
from turnwise.credit.annotator_kind import AnnotatorKind
from turnwise.credit.annotator_table import find_annotators
from turnwise.credit.reward_kind import RewardKind
from turnwise.credit.reward_table import find_reward
from turnwise.forecast.copies import Copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A recipe and what it means."""

    config: RunConfig
    """The recipe with canonical names of its methods, so that a run, its resumption and its audit see one name."""
    algorithm: Algorithm
    engine: EngineKind
    credit: RecipeCredit | None
    """None where the algorithm has no credit."""
    loss: RecipeLoss | None
    """None where the algorithm has a loss of its own."""
    correction: ResolvedCorrection
    """What is done about tokens of older weights."""
    annotators: Mapping[str, AnnotatorKind]
    """What is measured on finished trajectories for credit, by name."""
    rewards: Mapping[str, RewardKind]
    """The terms of the reward that trains, by their names in the recipe."""
    branches: Branches
    """Which further futures of an attempt are sampled for credit."""
    copies: Copies
    """The models that a training run holds besides the policy."""

    def build_credit(self) -> CheckedCredit:
        """The credit method as it is in the first step. Raises ConfigError where the algorithm has none."""
        if self.credit is None:
            raise ConfigError(f"train.algorithm={self.algorithm.name!r} does not use a credit method")
        return self.credit.build(self.penalty)

    @property
    def needs_baseline(self) -> bool:
        """Whether credit compares with a greedy attempt."""
        return any(kind.needs_baseline for kind in self.annotators.values())

    @property
    def penalty(self) -> float:
        """The coefficient of a KL penalty in the reward, in the first step; 0 where there is none."""
        return read_penalty(self.config.loss)


def resolve(config: RunConfig) -> Resolved:
    """What a recipe means. Raises ConfigError in one line, with the remedy, for a name that leads nowhere, and where
    engine, credit, critic, loss and schedule do not fit together."""
    algorithm, engine = find_algorithm(config.train.algorithm), find_engine_kind(config.engine.kind)
    check_engine_fits(config, engine)
    credit = find_credit(config.credit) if algorithm.has_credit else None
    loss = find_loss(config.loss) if algorithm.has_credit else None
    config = _name_methods(config, credit, loss)
    build_curriculum(config)
    if credit is not None:
        check_critic(credit.method, config.critic)
    annotators = credit.method.annotators if credit is not None else ()
    return Resolved(
        config=config,
        algorithm=algorithm,
        engine=engine,
        credit=credit,
        loss=loss,
        correction=resolve_correction(
            config.loss,
            method=None if loss is None else loss.method,
            algorithm=algorithm,
            max_staleness=config.schedule.max_staleness,
        ),
        annotators=find_annotators(annotators, config.credit.method, config.annotators),
        rewards={name: find_reward(name, section) for name, section in config.rewards.items()},
        branches=_find_branches(config, credit),
        copies=list_copies(config, needs=() if credit is None else credit.method.needs),
    )


def _name_methods(config: RunConfig, credit: RecipeCredit | None, loss: RecipeLoss | None) -> RunConfig:
    """The recipe with canonical names instead of aliases; import paths and names of packages stay as they are."""
    if credit is not None and credit.method.name in CREDIT_METHODS:
        section = config.credit.model_copy(update={"method": credit.method.name})
        config = config.model_copy(update={"credit": section})
    if loss is not None and loss.method.name in LOSSES:
        config = config.model_copy(update={"loss": config.loss.model_copy(update={"method": loss.method.name})})
    return config


def _find_branches(config: RunConfig, credit: RecipeCredit | None) -> Branches:
    """The branches of the credit method, unless no continuations are wanted."""
    branches: Branches = "none" if credit is None else credit.method.branches
    return "none" if branches == "values" and config.credit.branching.num_continuations == 0 else branches
