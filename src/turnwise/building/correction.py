"""What a recipe does about tokens that other weights sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnwise.algorithms.losses.method import LossMethod
from turnwise.config.loss import LossSection
from turnwise.config.train_algorithms.algorithm import Algorithm
from turnwise.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCorrection:
    """`loss.recompute_old` and `loss.correction.mode` with "auto" replaced."""

    recompute_old: bool
    """The trainer scores tokens before the step, and ratios are taken to that."""
    mode: Literal["none", "truncate", "mask", "reject", "second_moment"]
    level: Literal["token", "sequence", "geometric"]
    text: str
    """One line for people: what was chosen and why."""


def leave_uncorrected(loss: LossSection, why: str) -> ResolvedCorrection:
    """What is done where no token is stale or no ratio is taken, which `why` says."""
    mode = "none" if loss.correction.mode == "auto" else loss.correction.mode
    return ResolvedCorrection(
        recompute_old=loss.recompute_old is True, mode=mode, level=loss.correction.level, text=f"stale tokens: {why}"
    )


def resolve_correction(
    loss: LossSection, *, method: LossMethod | None, algorithm: Algorithm, max_staleness: int
) -> ResolvedCorrection:
    """How a recipe corrects tokens of older weights; `method` is None where the algorithm has a loss of its own.

    Synchronous training corrects nothing. With `schedule.max_staleness` above 0 the loss's row says what it takes
    (`LossMethod.stale`), with one deviation: where a step is a single update, ratios to recomputed log-probabilities
    are 1 and the loss's clip holds nothing back, so a loss that clips takes its ratios to the sampler's. Raises
    ConfigError where the loss cannot correct stale tokens, with the remedy.
    """
    mode, level = loss.correction.mode, loss.correction.level
    if max_staleness == 0:
        return leave_uncorrected(loss, "synchronous")
    if method is None:
        return leave_uncorrected(loss, f"train.algorithm={algorithm.name!r} uses no ratios")
    corrects = method.stale in ("decoupled", "sequence")
    if method.stale == "refuse" and "auto" in (loss.recompute_old, mode):
        raise ConfigError(
            f"loss.method={loss.method!r} does not define a correction for stale tokens, and schedule.max_staleness is "
            f"{max_staleness}; set loss.recompute_old and loss.correction.mode, or schedule.max_staleness=0"
        )
    takes_one_update = loss.updates_per_step == 1 and loss.epochs == 1
    clips_itself = loss.recompute_old == "auto" and takes_one_update and method.anchor == "old"
    if mode == "auto":
        mode = "truncate" if corrects and loss.recompute_old is not False and not clips_itself else "none"
        level = "geometric" if method.stale == "sequence" else "token"
    by_default = method.stale == "proximal" or mode != "none"
    recompute = by_default if loss.recompute_old == "auto" else loss.recompute_old
    if mode == "none" and method.anchor == "none":
        raise ConfigError(
            f"loss.method={loss.method!r} uses no ratio, so without loss.correction it trains stale tokens as if the "
            f"current weights had sampled them, and schedule.max_staleness is {max_staleness}; leave "
            "loss.recompute_old and loss.correction.mode at 'auto', or set schedule.max_staleness=0"
        )
    if recompute and not loss.mask_observations:
        raise ConfigError(
            "loss.mask_observations=false trains tokens that were not sampled and have no ratio to correct; set "
            "schedule.max_staleness=0"
        )
    weights = "no importance weights"
    if mode != "none":
        weights = f"importance weights old / behavior, {mode} per {'token' if level == 'token' else 'sequence'}"
    ratio = "recomputed old log-probabilities" if recompute else "the sampler's log-probabilities"
    text = f"stale tokens (schedule.max_staleness={max_staleness}): {loss.method} with ratios to {ratio}, {weights}"
    return ResolvedCorrection(recompute_old=recompute, mode=mode, level=level, text=text)
