"""The policy loss of a recipe, a row of the table, of an installed package, or at an import path; and its pair loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from turnwise.algorithms.corrections import Correction, compute_correction, compute_second_moment_mask
from turnwise.algorithms.losses.custom import try_loss
from turnwise.algorithms.losses.drift import mask_drifted_sequences
from turnwise.algorithms.losses.inputs import LossFunction, LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.losses.table import LOSSES, build_loss_row, check_loss_row
from turnwise.algorithms.names import find_row
from turnwise.algorithms.preference.dpo import PairOutput, compute_dpo_loss
from turnwise.algorithms.preference.step_dpo import compute_step_dpo_loss
from turnwise.building.correction import ResolvedCorrection
from turnwise.config.learning import PreferenceSection
from turnwise.config.loss import LossSection
from turnwise.config.train_algorithms.algorithm import Algorithm
from turnwise.core.errors import ConfigError, TrainingError, boundary
from turnwise.core.offers import describe_offers, load_row
from turnwise.training.policy_step import PolicyLoss
from turnwise.training.preference_step import PairFunction

if TYPE_CHECKING:
    from turnwise.building.resolved import Resolved

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


def build_policy_loss(resolved: Resolved) -> PolicyLoss:
    """The recipe's policy loss. Raises ConfigError when an option or a combination is wrong, or the algorithm has
    none."""
    config, correction = resolved.config, resolved.correction
    if resolved.loss is None:
        raise ConfigError(f"train.algorithm={resolved.algorithm.name!r} has no policy loss")
    loss, method = config.loss, resolved.loss.method
    function = resolved.loss.build(corrected=correction.mode != "none", old_is_behavior=not correction.recompute_old)
    kl, teacher = loss.kl, loss.teacher
    return PolicyLoss(
        function=mask_drifted_sequences(function, max_drift=loss.max_drift) if loss.max_drift else function,
        temperature=config.rollout.temperature,
        aggregation=loss.aggregation or method.default_aggregation,
        constant=float(loss.constant or config.rollout.max_tokens),
        rejected=loss.rejected,
        batch_rule=method.batch_rule,
        correct=build_correction(loss, correction),
        kl_kind=kl.kind,
        kl_coefficient=kl.coefficient if kl.place == "loss" else 0.0,
        entropy_coefficient=loss.entropy_coefficient,
        teacher_coefficient=teacher.coefficient if teacher.path and teacher.kind == "exact" else 0.0,
    )


def build_correction(
    loss: LossSection, resolved: ResolvedCorrection
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Correction] | None:
    """The recipe's importance correction, from old and behavior log-probabilities and sequences; None for none."""
    correction = loss.correction
    if resolved.mode == "none":
        return None
    if resolved.mode == "second_moment":
        limit = correction.max_second_moment
        return lambda old, behavior, sequence: compute_second_moment_mask(old, behavior, max_second_moment=limit)
    return partial(
        compute_correction,
        mode=resolved.mode,
        level=resolved.level,
        low=correction.low,
        high=correction.high,
        veto=correction.veto or None,
    )


def build_pair_loss(algorithm: Algorithm, preference: PreferenceSection) -> PairFunction | None:
    """The loss of an algorithm that learns from pairs; None of the others."""
    if not algorithm.has_pairs:
        return None
    if algorithm.pairs == "steps":

        def compute_by_step(
            policy: torch.Tensor, reference: torch.Tensor, sequence: torch.Tensor, in_step: torch.Tensor, num_pairs: int
        ) -> PairOutput:
            return compute_step_dpo_loss(
                policy, reference, sequence, in_step, num_pairs=num_pairs, beta=preference.beta
            )

        return compute_by_step

    def compute(
        policy: torch.Tensor, reference: torch.Tensor, sequence: torch.Tensor, in_step: torch.Tensor, num_pairs: int
    ) -> PairOutput:
        return compute_dpo_loss(
            policy,
            reference,
            sequence,
            num_pairs=num_pairs,
            beta=preference.beta,
            kind=preference.kind,
            label_smoothing=preference.label_smoothing,
        )

    return compute
