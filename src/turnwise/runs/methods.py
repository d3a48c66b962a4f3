"""Credit methods and policy losses of a recipe, by name or import path; every combination is checked before anything else is built."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from turnwise.algorithms.corrections import compute_correction
from turnwise.algorithms.credit import CreditMethod
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit
from turnwise.algorithms.losses.inputs import LossFunction
from turnwise.algorithms.losses.table import LOSSES, build_loss
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, boundary
from turnwise.training.policy_step import PolicyLoss


def check_methods(config: RunConfig) -> None:
    """Raise ConfigError with the reason when credit, critic and loss of a recipe do not fit together."""
    if config.train.algorithm == "policy_gradient":
        build_credit_method(config)
        build_policy_loss(config)


def build_credit_method(config: RunConfig) -> CheckedCredit:
    """The recipe's credit method, with checks around it.

    A KL penalty in the reward goes to the method itself where it lays rewards out over tokens. Raises ConfigError when the name, an
    option or an import path is wrong, or the method and the critic do not fit.
    """
    section = config.credit
    options: dict[str, Any] = dict(section.options)
    if ":" in section.method:
        function = import_function("credit.method", section.method)
        own = CreditMethod(
            name=section.method,
            summary="",
            formula="",
            paper="",
            defaults=options,
            group_of_one="",
            constant_group="",
            build=lambda **given: partial(function, **given) if given else function,
        )
        credit = CheckedCredit(method=own, function=own.build(**options))
    else:
        if penalises_tokens(config) and takes_token_penalty(section.method):
            options["kl_coefficient"] = config.loss.kl.coefficient
        with boundary(ConfigError, "credit.method and credit.options"):
            credit = build_credit(section.method, options)
    needs_critic, critic = "values" in credit.method.needs, config.critic.kind
    if needs_critic and critic == "none":
        raise ConfigError(f"credit.method={section.method!r} reads the values of a critic; set critic.kind to 'head' or 'separate'")
    if not needs_critic and critic != "none":
        raise ConfigError(
            f"critic.kind={critic!r}, but credit.method={section.method!r} reads no values; use 'gae', 'turn_gae' or 'bilevel_gae', "
            "or set critic.kind to 'none'"
        )
    return credit


def penalises_tokens(config: RunConfig) -> bool:
    """Whether a KL penalty sits in the reward."""
    return config.loss.kl.place == "reward" and config.loss.kl.coefficient > 0


def takes_token_penalty(method: str) -> bool:
    """Whether a method of the table lays rewards out over tokens, a KL penalty among them."""
    return method in CREDIT_METHODS and "kl_coefficient" in CREDIT_METHODS[method].defaults


def build_policy_loss(config: RunConfig) -> PolicyLoss:
    """The recipe's policy loss. Raises ConfigError when the name, an option, an import path or a combination is wrong."""
    loss, correction = config.loss, config.loss.correction
    corrected, old_is_behavior = correction.mode != "none", not loss.recompute_old
    options: dict[str, Any] = dict(loss.options)
    if ":" in loss.method:
        function: LossFunction = partial(import_function("loss.method", loss.method), **options)
        aggregation, batch_rule = "token_mean", False
        if corrected and old_is_behavior:
            raise ConfigError("loss.correction.mode: without loss.recompute_old=true there is nothing to correct (old / behavior is 1)")
    else:
        with boundary(ConfigError, "loss.method and loss.options"):
            function = build_loss(loss.method, options, corrected=corrected, old_is_behavior=old_is_behavior)
        method = LOSSES[loss.method]
        aggregation, batch_rule = method.default_aggregation, method.batch_rule
    kl, teacher = loss.kl, loss.teacher
    return PolicyLoss(
        function=function,
        temperature=config.rollout.temperature,
        aggregation=loss.aggregation or aggregation,  # type: ignore[arg-type]
        constant=float(loss.constant or config.rollout.max_tokens),
        rejected=loss.rejected,
        batch_rule=batch_rule,
        correct=partial(
            compute_correction,
            mode=correction.mode,  # type: ignore[arg-type]
            level=correction.level,
            low=correction.low,
            high=correction.high,
            veto=correction.veto or None,
        )
        if corrected
        else None,
        kl_kind=kl.kind,
        kl_coefficient=kl.coefficient if kl.place == "loss" else 0.0,
        entropy_coefficient=loss.entropy_coefficient,
        teacher_coefficient=teacher.coefficient if teacher.path and teacher.kind == "exact" else 0.0,
    )


def import_function(key: str, path: str) -> Callable[..., Any]:
    """The function at "package.module:function". Raises ConfigError naming `key` when it leads nowhere or to something else."""
    module_name, _, name = path.partition(":")
    with boundary(ConfigError, f"{key}={path!r} cannot be imported"):
        found = getattr(importlib.import_module(module_name), name)
    if not callable(found):
        raise ConfigError(f"{key}={path!r} is a {type(found).__name__}; name a function")
    function: Callable[..., Any] = found
    return function
