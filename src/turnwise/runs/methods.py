"""Credit methods and policy losses of a recipe, by name or import path; every combination is checked before anything
else is built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from turnwise.algorithms.corrections import Correction, compute_correction, compute_second_moment_mask
from turnwise.algorithms.credit import CreditMethod
from turnwise.algorithms.credit_table import CREDIT_METHODS
from turnwise.algorithms.losses.drift import mask_drifted_sequences
from turnwise.algorithms.losses.inputs import LossFunction
from turnwise.algorithms.losses.table import LOSSES, build_loss
from turnwise.algorithms.names import find_row
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.protocols import ForkableEnvironment
from turnwise.credit.gold_answers import GoldAnswers
from turnwise.runs.build import build_family
from turnwise.training.policy_step import PolicyLoss


def check_methods(config: RunConfig) -> RunConfig:
    """The recipe with the canonical names of its credit method and loss.

    Raises ConfigError with the reason when credit, critic, loss, group and environment do not fit together."""
    if config.train.algorithm != "policy_gradient":
        return config
    config = name_methods(config)
    method = build_credit_method(config).method
    build_policy_loss(config)
    check_groups(config, method)
    check_environment(config, method)
    return config


def name_methods(config: RunConfig) -> RunConfig:
    """The recipe with canonical names instead of aliases, so that a run, its resumption and its audit see one name.

    Import paths stay as they are. Raises ConfigError naming the nearest known name for an unknown one."""
    credit, loss = config.credit, config.loss
    if ":" not in credit.method:
        with boundary(ConfigError, "credit.method"):
            name = find_row("credit method", credit.method, CREDIT_METHODS).name
        config = config.model_copy(update={"credit": credit.model_copy(update={"method": name})})
    if ":" not in loss.method:
        with boundary(ConfigError, "loss.method"):
            name = find_row("loss", loss.method, LOSSES).name
        config = config.model_copy(update={"loss": loss.model_copy(update={"method": name})})
    return config


def check_groups(config: RunConfig, method: CreditMethod) -> None:
    """Raise ConfigError when credit compares what the rollouts do not give."""
    rollout = config.rollout
    if config.train.steps > 0 and method.compares == "group" and rollout.group_size < 2:
        raise ConfigError(
            f"credit.method={method.name!r} compares the members of a group, rollout.group_size={rollout.group_size} "
            "has nothing to compare; use at least 2"
        )
    if method.compares == "leaves" and not rollout.train_truncated:
        raise ConfigError(
            f"rollout.train_truncated=false leaves out whole trajectories, credit.method={method.name!r} trains "
            "branches, each with an end of its own; set it to true"
        )


def check_environment(config: RunConfig, method: CreditMethod) -> None:
    """Raise ConfigError when credit asks for what the environment cannot do, or for one sum of penalties where several
    futures share a past."""
    if find_branches(config) != "none":
        family = build_family(config)
        environment = family.build_environment(family.task("train", 0))
        if not isinstance(environment, ForkableEnvironment):
            raise ConfigError(
                f"credit.method={method.name!r} samples several futures from one state, and "
                f"{type(environment).__name__} of environment.name={config.environment.name!r} cannot fork; give it "
                "`async def fork(self)`, or choose another method"
            )
    if method.compares == "leaves" and penalises_tokens(config):
        raise ConfigError(
            f"credit.method={method.name!r} with loss.kl.place='reward': a turn above a fork has several futures, and "
            "so no one sum of penalties to come; use loss.kl.place='loss'"
        )
    if "answer_probability" in method.annotators and not isinstance(build_family(config), GoldAnswers):
        raise ConfigError(
            f"credit.method={method.name!r} scores the right answer after every turn, and "
            f"environment.name={config.environment.name!r} does not say which it is; give its family `gold_answer` and "
            "`answer_reply`, or choose another method"
        )


def build_branching(system: System, worker: RolloutWorker) -> RolloutWorker:
    """The worker with the branches that the recipe's credit method asks for."""
    branching, kind = system.config.credit.branching, find_branches(system.config)
    plan: Branching | None = None
    if kind == "values":
        plan = ValueEstimates(num_continuations=branching.num_continuations)
    elif kind == "random":
        plan = RandomTree(num_branches=branching.num_branches, num_rounds=branching.num_rounds)
    elif kind == "entropy":
        plan = EntropyTree(
            num_branches=branching.num_branches,
            vocab_size=len(system.tokenizer),
            weight=branching.entropy_weight,
            threshold=branching.entropy_threshold,
            num_tokens=branching.num_entropy_tokens,
        )
    return replace(worker, branching=plan)


def build_policy_loss(config: RunConfig) -> PolicyLoss:
    """The recipe's policy loss. Raises ConfigError for a wrong name, option, import path or combination."""
    loss, correction = config.loss, config.loss.correction
    corrected, old_is_behavior = correction.mode != "none", not loss.recompute_old
    options: dict[str, Any] = dict(loss.options)
    if ":" in loss.method:
        function: LossFunction = partial(import_function("loss.method", loss.method), **options)
        aggregation, batch_rule = "token_mean", False
        if corrected and old_is_behavior:
            raise ConfigError(
                "loss.correction.mode: without loss.recompute_old=true there is nothing to correct (old / behavior is "
                "1)"
            )
    else:
        with boundary(ConfigError, "loss.method and loss.options"):
            method = find_row("loss", loss.method, LOSSES)
            function = build_loss(method.name, options, corrected=corrected, old_is_behavior=old_is_behavior)
        aggregation, batch_rule = method.default_aggregation, method.batch_rule
    kl, teacher = loss.kl, loss.teacher
    return PolicyLoss(
        function=mask_drifted_sequences(function, max_drift=loss.max_drift) if loss.max_drift else function,
        temperature=config.rollout.temperature,
        aggregation=loss.aggregation or aggregation,  # type: ignore[arg-type]
        constant=float(loss.constant or config.rollout.max_tokens),
        rejected=loss.rejected,
        batch_rule=batch_rule,
        correct=build_correction(config),
        kl_kind=kl.kind,
        kl_coefficient=kl.coefficient if kl.place == "loss" else 0.0,
        entropy_coefficient=loss.entropy_coefficient,
        teacher_coefficient=teacher.coefficient if teacher.path and teacher.kind == "exact" else 0.0,
    )


def build_correction(config: RunConfig) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Correction] | None:
    """The recipe's importance correction, from old and behavior log-probabilities and sequences; None for none."""
    correction = config.loss.correction
    if correction.mode == "none":
        return None
    if correction.mode == "second_moment":
        limit = correction.max_second_moment
        return lambda old, behavior, sequence: compute_second_moment_mask(old, behavior, max_second_moment=limit)
    return partial(
        compute_correction,
        mode=correction.mode,
        level=correction.level,
        low=correction.low,
        high=correction.high,
        veto=correction.veto or None,
    )
