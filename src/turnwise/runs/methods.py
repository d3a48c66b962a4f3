"""Policy losses of a recipe by name or import path; every combination of methods is checked before anything is
built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from turnwise.algorithms.corrections import Correction, compute_correction, compute_second_moment_mask
from turnwise.algorithms.credit import CreditMethod
from turnwise.algorithms.credit_table import CREDIT_METHODS
from turnwise.algorithms.losses.custom import try_loss
from turnwise.algorithms.losses.drift import mask_drifted_sequences
from turnwise.algorithms.losses.inputs import LossFunction, LossInputs, LossOutput
from turnwise.algorithms.losses.method import Anchor, Stale
from turnwise.algorithms.losses.table import LOSSES, build_loss
from turnwise.algorithms.names import find_row
from turnwise.algorithms.preference.dpo import PairOutput, compute_dpo_loss
from turnwise.algorithms.preference.step_dpo import compute_step_dpo_loss
from turnwise.config.run import RunConfig
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import ConfigError, TrainingError, boundary
from turnwise.core.protocols import ForkableEnvironment, GoldAnswers
from turnwise.credit.methods import build_credit_method, find_branches, import_function, penalises_tokens
from turnwise.environments.mixture import list_families
from turnwise.runs.families import build_family
from turnwise.runs.optimizers import check_optimizer
from turnwise.training.policy_step import PolicyLoss
from turnwise.training.preference_step import PairFunction


def check_methods(config: RunConfig) -> RunConfig:
    """The recipe with the canonical names of its credit method and loss.

    Raises ConfigError with the reason when credit, critic, loss, group and environment do not fit together, or the
    optimizer cannot be used."""
    check_optimizer(config)
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
    for family in list_families(build_family(config)) if find_branches(config) != "none" else ():
        environment = family.build_environment(family.task("train", 0))
        if not isinstance(environment, ForkableEnvironment):
            raise ConfigError(
                f"credit.method={method.name!r} samples several futures from one state, and "
                f"{type(environment).__name__} of environment.name={config.environment.name!r} cannot fork; give it "
                "`async def fork(self)`, or choose another method"
            )
    for family in list_families(build_family(config)) if method.annotators else ():
        environment = family.build_environment(family.task("train", 0))
        if isinstance(environment, AskingEnvironment):
            raise ConfigError(
                f"credit.method={method.name!r} measures {' and '.join(method.annotators)} of one conversation, and "
                f"{type(environment).__name__} of environment.name={config.environment.name!r} has several; choose "
                "another method"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCorrection:
    """What a recipe does about tokens that other weights sampled."""

    recompute_old: bool
    """The trainer scores tokens before the step, and ratios are taken to that."""
    mode: Literal["none", "truncate", "mask", "reject", "second_moment"]
    level: Literal["token", "sequence", "geometric"]
    text: str
    """One line for people: what was chosen and why."""


def resolve_correction(config: RunConfig) -> ResolvedCorrection:
    """`loss.recompute_old` and `loss.correction.mode` with "auto" replaced.

    Synchronous training corrects nothing. With `schedule.max_staleness` above 0 the loss's row says what it takes
    (`LossMethod.stale`), with one deviation: where a step is a single update, ratios to recomputed log-probabilities
    are 1 and the loss's clip holds nothing back, so a loss that clips takes its ratios to the sampler's. Raises
    ConfigError where the loss cannot correct stale tokens, with the remedy.
    """
    loss, staleness = config.loss, config.schedule.max_staleness
    mode, level = loss.correction.mode, loss.correction.level
    if staleness == 0 or config.train.algorithm != "policy_gradient":
        recompute = loss.recompute_old is True
        text = "synchronous" if staleness == 0 else f"train.algorithm={config.train.algorithm!r} takes no ratios"
        resolved = "none" if mode == "auto" else mode
        return ResolvedCorrection(recompute_old=recompute, mode=resolved, level=level, text=f"stale tokens: {text}")
    stale = _find_stale(config)
    corrects = stale in ("decoupled", "sequence")
    if stale == "refuse" and "auto" in (loss.recompute_old, mode):
        raise ConfigError(
            f"loss.method={loss.method!r} does not say how it corrects stale tokens, and schedule.max_staleness is "
            f"{staleness}; set loss.recompute_old and loss.correction.mode, or schedule.max_staleness=0"
        )
    takes_one_update = loss.updates_per_step == 1 and loss.epochs == 1
    clips_itself = loss.recompute_old == "auto" and takes_one_update and _find_anchor(config) == "old"
    if mode == "auto":
        mode = "truncate" if corrects and loss.recompute_old is not False and not clips_itself else "none"
        level = "geometric" if stale == "sequence" else "token"
    by_default = stale == "proximal" or mode != "none"
    recompute = by_default if loss.recompute_old == "auto" else loss.recompute_old
    if mode == "none" and _find_anchor(config) == "none":
        raise ConfigError(
            f"loss.method={loss.method!r} takes no ratio, so without loss.correction it trains stale tokens as if the "
            f"present weights had sampled them, and schedule.max_staleness is {staleness}; leave loss.recompute_old "
            "and loss.correction.mode at 'auto', or set schedule.max_staleness=0"
        )
    if recompute and not loss.mask_observations:
        raise ConfigError(
            "loss.mask_observations=false trains tokens that were not sampled, which have no ratio to correct; set "
            "schedule.max_staleness=0"
        )
    weights = "no importance weights"
    if mode != "none":
        weights = f"importance weights old / behavior, {mode} per {'token' if level == 'token' else 'sequence'}"
    ratio = "recomputed old log-probabilities" if recompute else "the sampler's log-probabilities"
    text = f"stale tokens (schedule.max_staleness={staleness}): {loss.method} with ratios to {ratio}, {weights}"
    return ResolvedCorrection(recompute_old=recompute, mode=mode, level=level, text=text)


def _find_stale(config: RunConfig) -> Stale:
    method = config.loss.method
    if ":" in method:
        return "refuse"
    with boundary(ConfigError, "loss.method"):
        return find_row("loss", method, LOSSES).stale


def _find_anchor(config: RunConfig) -> Anchor:
    method = config.loss.method
    return "old" if ":" in method else find_row("loss", method, LOSSES).anchor


def build_policy_loss(config: RunConfig) -> PolicyLoss:
    """The recipe's policy loss. Raises ConfigError when the name, an option, an import path or a combination is
    wrong."""
    loss, resolved = config.loss, resolve_correction(config)
    corrected, old_is_behavior = resolved.mode != "none", not resolved.recompute_old
    options: dict[str, Any] = dict(loss.options)
    if ":" in loss.method:
        function: LossFunction = _try_own_loss(loss.method, options)
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


def _try_own_loss(path: str, options: dict[str, Any]) -> LossFunction:
    """The loss of an import path, tried on three tokens. Raises ConfigError naming it, its options and what is wrong
    with what it returns; it raises TrainingError with the same words where a micro-batch shows it."""
    own = import_function("loss.method", path)
    what = f"loss.method={path!r}" + (f" with loss.options={options}" if options else "")
    with boundary(ConfigError, what):
        checked = try_loss(partial(own, **options))

    def compute(inputs: LossInputs) -> LossOutput:
        with boundary(TrainingError, what):
            return checked(inputs)

    return compute


def build_correction(config: RunConfig) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Correction] | None:
    """The recipe's importance correction, from old and behavior log-probabilities and sequences; None for none."""
    correction, resolved = config.loss.correction, resolve_correction(config)
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


def build_pair_loss(config: RunConfig) -> PairFunction:
    """The loss of `train.algorithm` "dpo" or "step_dpo"."""
    preference = config.preference
    if config.train.algorithm == "step_dpo":

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
