"""The credit method of a recipe, by name or import path, and what it asks of a run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from turnwise.algorithms.credit import Branches, CreditMethod
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit
from turnwise.algorithms.credit_trial import try_credit
from turnwise.algorithms.names import find_row
from turnwise.config.copies import Copies, list_copies
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, boundary


def build_credit_method(config: RunConfig) -> CheckedCredit:
    """The recipe's credit method, with checks around it.

    A KL penalty in the reward goes to the method itself where it lays rewards out over tokens. Raises ConfigError when
    the name, an option or an import path is wrong, or the method and the critic do not fit.
    """
    section = config.credit
    options: dict[str, Any] = dict(section.options)
    if ":" in section.method:
        function = import_function("credit.method", section.method)
        row = CreditMethod(
            name=section.method,
            summary="",
            formula="",
            paper="",
            defaults=options,
            group_of_one="",
            constant_group="",
            compares="nothing",
            build=lambda **given: partial(function, **given) if given else function,
        )
        credit = CheckedCredit(method=row, function=row.build(**options))
        what = f"credit.method={section.method!r}" + (f" with credit.options={options}" if options else "")
        with boundary(ConfigError, what):
            try_credit(credit)
    else:
        with boundary(ConfigError, "credit.method and credit.options"):
            method = find_row("credit method", section.method, CREDIT_METHODS)
            if penalises_tokens(config) and method.takes_token_penalty:
                options["kl_coefficient"] = config.loss.kl.coefficient
            credit = build_credit(method.name, options)
    needs_critic, critic = "values" in credit.method.needs, config.critic.kind
    if needs_critic and critic == "none":
        raise ConfigError(
            f"credit.method={section.method!r} reads the values of a critic; set critic.kind to 'head' or 'separate'"
        )
    if not needs_critic and critic != "none":
        raise ConfigError(
            f"critic.kind={critic!r}, but credit.method={section.method!r} reads no values; use 'gae', 'turn_gae' "
            "or 'bilevel_gae', or set critic.kind to 'none'"
        )
    return credit


def penalises_tokens(config: RunConfig) -> bool:
    """Whether a KL penalty sits in the reward."""
    return config.loss.kl.place == "reward" and config.loss.kl.coefficient > 0


def find_branches(config: RunConfig) -> Branches:
    """Which branches the recipe samples: those of its credit method, unless no continuations are wanted."""
    if config.train.algorithm != "policy_gradient":
        return "none"
    branches = build_credit_method(config).method.branches
    return "none" if branches == "values" and config.credit.branching.num_continuations == 0 else branches


def find_copies(config: RunConfig) -> Copies:
    """The models that a training run of the recipe holds."""
    by_gradient = config.train.algorithm == "policy_gradient"
    return list_copies(config, needs=build_credit_method(config).method.needs if by_gradient else ())


def import_function(key: str, path: str) -> Callable[..., Any]:
    """The function at "package.module:function".

    Raises ConfigError naming `key` when it leads nowhere or to something else.
    """
    module_name, _, name = path.partition(":")
    with boundary(ConfigError, f"{key}={path!r} cannot be imported"):
        value = getattr(importlib.import_module(module_name), name)
    if not callable(value):
        raise ConfigError(f"{key}={path!r} is a {type(value).__name__}; name a function")
    function: Callable[..., Any] = value
    return function
