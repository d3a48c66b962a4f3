"""What a trainer minimises by a resolved recipe: its policy loss with corrections and penalties, or its pair loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from turnwise.algorithms.corrections import Correction, compute_correction, compute_second_moment_mask
from turnwise.algorithms.losses.drift import mask_drifted_sequences
from turnwise.algorithms.preference.dpo import PairOutput, compute_dpo_loss
from turnwise.algorithms.preference.step_dpo import compute_step_dpo_loss
from turnwise.building.correction import ResolvedCorrection
from turnwise.building.resolved import Resolved
from turnwise.config.loss import LossSection
from turnwise.config.selection import PreferenceSection
from turnwise.config.train_algorithms.algorithm import Algorithm
from turnwise.core.errors import ConfigError
from turnwise.training.policy_step import PolicyLoss
from turnwise.training.preference_step import PairFunction


def build_policy_loss(resolved: Resolved) -> PolicyLoss:
    """The recipe's policy loss. Raises ConfigError when an option or a combination is wrong, or the algorithm has
    none."""
    config, correction = resolved.config, resolved.correction
    if resolved.loss is None:
        raise ConfigError(f"train.algorithm={resolved.algorithm.name!r} does not use a policy loss")
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
