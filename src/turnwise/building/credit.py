"""The credit method of a recipe: a row of the table, of an installed package, or at an import path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from turnwise.algorithms.credit import CreditMethod
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit_row
from turnwise.algorithms.credit_trial import try_credit
from turnwise.algorithms.names import find_row
from turnwise.config.credit import CreditSection, CriticSection
from turnwise.config.loss import LossSection
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.offers import describe_offers, load_row

GROUP = "turnwise.credit"
"""Entry-point group in which an installed package names its credit methods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeCredit:
    """A credit method and the recipe's options of it."""

    method: CreditMethod
    options: Mapping[str, Any] = field(default_factory=dict)
    is_own: bool = False
    """Whether the method is none of the table, and so is tried before anything trains."""

    def build(self, kl_coefficient: float = 0.0) -> CheckedCredit:
        """The function with checks around it. A KL penalty in the reward, if its coefficient is above 0, goes to the
        method itself where it lays rewards out over tokens.

        Raises ConfigError when an option is wrong or a method of the user's own cannot credit."""
        options, name = dict(self.options), self.method.name
        if kl_coefficient > 0 and self.method.takes_token_penalty:
            options["kl_coefficient"] = kl_coefficient
        if not self.is_own:
            with boundary(ConfigError, "credit.method and credit.options"):
                return build_credit_row(self.method, options)
        what = f"credit.method={name!r}" + (f" with credit.options={options}" if options else "")
        with boundary(ConfigError, what):
            credit = build_credit_row(self.method, options)
            try_credit(credit)
        return credit


def find_credit(section: CreditSection) -> RecipeCredit:
    """What `credit.method` names. Raises ConfigError when it leads nowhere or to something else, an unknown name with
    the nearest one."""
    name, options = section.method, dict(section.options)
    found = load_row("credit.method", name, CreditMethod, group=GROUP, built_in=CREDIT_METHODS)
    if isinstance(found, CreditMethod):
        return RecipeCredit(method=replace(found, name=name), options=options, is_own=True)
    if found is not None:
        return RecipeCredit(method=describe_function(name, found, options), options=options, is_own=True)
    try:
        return RecipeCredit(method=find_row("credit method", name, CREDIT_METHODS), options=options)
    except ValueError as unknown:
        raise ConfigError(f"credit.method: {unknown}{describe_offers(GROUP)}") from None


def read_penalty(loss: LossSection) -> float:
    """The coefficient of a KL penalty in the reward; 0 where there is none."""
    return loss.kl.coefficient if loss.kl.place == "reward" else 0.0


def describe_function(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> CreditMethod:
    """The row of a bare function, which takes the recipe's options, whatever they are."""
    return CreditMethod(
        name=name,
        summary="",
        formula="",
        paper="",
        defaults=options,
        group_of_one="",
        constant_group="",
        compares="nothing",
        build=lambda **given: partial(function, **given) if given else function,
    )


def check_critic(method: CreditMethod, critic: CriticSection) -> None:
    """Raise ConfigError if a method that reads values has no critic, or if no method reads the critic."""
    needs_critic = "values" in method.needs
    if needs_critic and critic.kind == "none":
        raise ConfigError(f"credit.method={method.name!r} needs a critic; set critic.kind to 'head' or 'separate'")
    if not needs_critic and critic.kind != "none":
        raise ConfigError(
            f"critic.kind={critic.kind!r}, but credit.method={method.name!r} uses no critic; use 'gae', 'turn_gae' or "
            "'bilevel_gae', or set critic.kind to 'none'"
        )
