"""Credit methods and policy losses of a recipe, by name or import path; every combination is checked before anything
else is built."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from turnwise.algorithms.corrections import Correction, compute_correction, compute_second_moment_mask
from turnwise.algorithms.credit import CreditMethod
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit
from turnwise.algorithms.losses.drift import mask_drifted_sequences
from turnwise.algorithms.losses.inputs import LossFunction
from turnwise.algorithms.losses.table import LOSSES, build_loss
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.protocols import ForkableEnvironment
from turnwise.credit.gold_answers import GoldAnswers
from turnwise.runs.build import build_family
from turnwise.training.policy_step import PolicyLoss

BRANCHED = ("vine", "tree", "arpo")
"""Credit methods that look at several futures of one past."""


def check_methods(config: RunConfig) -> None:
    """Raise ConfigError with the reason when credit, critic, loss and environment of a recipe do not fit together."""
    if config.train.algorithm != "policy_gradient":
        return
    build_credit_method(config)
    build_policy_loss(config)
    check_environment(config)


def needs_fork(config: RunConfig) -> bool:
    """Whether the recipe's credit method samples branches."""
    method = config.credit.method
    return method in BRANCHED and not (method == "vine" and config.credit.branching.num_continuations == 0)


def check_environment(config: RunConfig) -> None:
    """Raise ConfigError when credit asks for what the environment cannot do, or for what several futures of one past do
    not have."""
    method = config.credit.method
    if needs_fork(config):
        environment = build_family(config).build_environment()
        if not isinstance(environment, ForkableEnvironment):
            raise ConfigError(
                f"credit.method={method!r} samples several futures from one state, and {type(environment).__name__} of "
                f"environment.name={config.environment.name!r} cannot fork; give it `async def fork(self)`, or "
                "choose another method"
            )
        if method != "vine" and penalises_tokens(config):
            raise ConfigError(
                f"credit.method={method!r} with loss.kl.place='reward': a turn above a fork has several futures, "
                "and so no one sum of "
                "penalties to come; use loss.kl.place='loss'"
            )
    if "answer_probability" in needs_of(method) and not isinstance(build_family(config), GoldAnswers):
        raise ConfigError(
            f"credit.method={method!r} scores the right answer after every turn, and "
            f"environment.name={config.environment.name!r} does "
            "not say which it is; give its family `gold_answer` and `answer_reply`, or choose another method"
        )


def needs_of(method: str) -> tuple[str, ...]:
    """What a credit method of the table reads besides outcomes; nothing for one of the user's own."""
    return CREDIT_METHODS[method].needs if method in CREDIT_METHODS else ()


def build_credit_method(config: RunConfig) -> CheckedCredit:
    """The recipe's credit method, with checks around it.

    A KL penalty in the reward goes to the method itself where it lays rewards out over tokens. Raises ConfigError when
    the name, an option or an import path is wrong, or the method and the critic do not fit."""
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
        raise ConfigError(
            f"credit.method={section.method!r} reads the values of a critic; set critic.kind to 'head' or 'separate'"
        )
    if not needs_critic and critic != "none":
        raise ConfigError(
            f"critic.kind={critic!r}, but credit.method={section.method!r} reads no values; use 'gae', 'turn_gae' "
            "or 'bilevel_gae', "
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
    """The recipe's policy loss. Raises ConfigError when the name, an option, an import path or a combination is
    wrong."""
    loss, correction = config.loss, config.loss.correction
    corrected, old_is_behavior = correction.mode != "none", not loss.recompute_old
    options: dict[str, Any] = dict(loss.options)
    if ":" in loss.method:
        function: LossFunction = partial(import_function("loss.method", loss.method), **options)
        aggregation, batch_rule = "token_mean", False
        if corrected and old_is_behavior:
            raise ConfigError(
                "loss.correction.mode: without loss.recompute_old=true there is nothing to correct (old / behavior "
                "is 1)"
            )
    else:
        with boundary(ConfigError, "loss.method and loss.options"):
            function = build_loss(loss.method, options, corrected=corrected, old_is_behavior=old_is_behavior)
        method = LOSSES[loss.method]
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


def import_function(key: str, path: str) -> Callable[..., Any]:
    """The function at "package.module:function". Raises ConfigError naming `key` when it leads nowhere or to something
    else."""
    module_name, _, name = path.partition(":")
    with boundary(ConfigError, f"{key}={path!r} cannot be imported"):
        found = getattr(importlib.import_module(module_name), name)
    if not callable(found):
        raise ConfigError(f"{key}={path!r} is a {type(found).__name__}; name a function")
    function: Callable[..., Any] = found
    return function
