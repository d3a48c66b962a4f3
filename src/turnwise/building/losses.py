"""The loss method of a recipe: a row of the table, of an installed package, or at an import path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from turnwise.algorithms.losses.custom import try_loss
from turnwise.algorithms.losses.inputs import LossFunction, LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.losses.table import LOSSES, build_loss_row, check_loss_row
from turnwise.algorithms.names import find_row
from turnwise.config.loss import LossSection
from turnwise.core.errors import ConfigError, TrainingError, boundary
from turnwise.core.offers import describe_offers, load_row

GROUP = "turnwise.losses"
"""Entry-point group in which an installed package names its losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeLoss:
    """A policy loss and the recipe's options of it."""

    method: LossMethod
    options: Mapping[str, Any] = field(default_factory=dict)
    is_own: bool = False
    """Whether the loss is none of the table, and so is tried before anything trains."""
    takes_any_options: bool = False
    """Whether it is a bare function, which says nothing about its options."""

    def build(self, *, corrected: bool, old_is_behavior: bool) -> LossFunction:
        """The function with its options. Raises ConfigError when an option, a combination or what a loss of the user's
        own returns is wrong; that raises TrainingError with the same words where a micro-batch shows it."""
        options = dict(self.options)
        what = "loss.method and loss.options"
        if self.is_own:
            what = f"loss.method={self.method.name!r}" + (f" with loss.options={options}" if options else "")
        with boundary(ConfigError, what):
            method = self.method
            if self.takes_any_options:
                method, options = replace(method, function=partial(method.function, **options)), {}
            if not self.is_own:
                return build_loss_row(method, options, corrected=corrected, old_is_behavior=old_is_behavior)
            check_loss_row(method, options, corrected=corrected, old_is_behavior=old_is_behavior)
            checked = try_loss(method.build(**options))

        def compute(inputs: LossInputs) -> LossOutput:
            with boundary(TrainingError, what):
                return checked(inputs)

        return compute


def find_loss(loss: LossSection) -> RecipeLoss:
    """What `loss.method` names. Raises ConfigError when it leads nowhere or to something else, an unknown name with the
    nearest one."""
    name, options = loss.method, dict(loss.options)
    found = load_row("loss.method", name, LossMethod, group=GROUP, built_in=LOSSES)
    if isinstance(found, LossMethod):
        return RecipeLoss(method=replace(found, name=name), options=options, is_own=True)
    if found is not None:
        method = describe_function(name, found)
        return RecipeLoss(method=method, options=options, is_own=True, takes_any_options=True)
    try:
        return RecipeLoss(method=find_row("loss", name, LOSSES), options=options)
    except ValueError as unknown:
        raise ConfigError(f"loss.method: {unknown}{describe_offers(GROUP)}") from None


def describe_function(name: str, function: Callable[..., Any]) -> LossMethod:
    """The row of a bare function: ratios to the old policy, a mean over tokens, and nothing about stale tokens."""
    return LossMethod(
        name=name,
        summary="",
        formula="",
        paper="",
        defaults={},
        level="token",
        default_aggregation="token_mean",
        anchor="old",
        function=function,
    )
