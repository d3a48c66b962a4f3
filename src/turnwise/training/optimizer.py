"""The optimizer, the learning-rate schedule, gradient clipping, and updates of several models at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Mean, Metric, Sum
from turnwise.models.rows import is_cut
from turnwise.training.loss_scale import add_loss_scale, find_scale, note_update
from turnwise.training.masters import find_master, follow_masters, keep_masters
from turnwise.training.resolution import Changes, ChangeSample

DecayFunction = Callable[[int, int], float]
"""Maps a step after the warm-up, counted from 0, and the number of steps after the warm-up to a factor of the base."""
Decay = Literal["none", "linear", "cosine"] | DecayFunction
BuildOptimizer = Callable[[list[dict[str, Any]], float], torch.optim.Optimizer]
"""Builds an optimizer from groups of parameters, each with its `weight_decay`, and a learning rate."""
CHANGED, SERVED, SHORT, DRIVEN, STEP, SIZE = "changed", "served", "short", "driven", "step", "size"
"""Names of the sums over all ranks from which `train/changed_share`, `train/served_share` and `train/relative_update`
are computed."""


class Trained(Protocol):
    """Parameters and their optimizer."""

    @property
    def module(self) -> torch.nn.Module:
        """The parameters that `optimizer` trains."""
        ...

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning rates of optimizer steps, counted from 0 (see `compute_lr`)."""

    base: float
    warmup_steps: int
    total_steps: int
    decay: Decay
    min_ratio: float = 0.0
    """Fraction of `base` towards which the rate decays."""

    def find_lr(self, step: int) -> float:
        """Return the learning rate of one step."""
        return compute_lr(
            step,
            base=self.base,
            warmup_steps=self.warmup_steps,
            total_steps=self.total_steps,
            decay=self.decay,
            min_ratio=self.min_ratio,
        )


def compute_lr(
    step: int, *, base: float, warmup_steps: int, total_steps: int, decay: Decay, min_ratio: float = 0.0
) -> float:
    """Return the learning rate of step `step` (from 0): linear warm-up to `base`, then `decay` towards `min_ratio *
    base` at `total_steps`.

    Raises TrainingError if a function's factor is not a number of at least 0.
    """
    if step < warmup_steps:
        return base * (step + 1) / warmup_steps
    after, total = step - warmup_steps, max(1, total_steps - warmup_steps)
    progress = min(1.0, after / total)
    factor = 1.0
    if callable(decay):
        factor = decay(after, total)
        if not isinstance(factor, int | float) or not math.isfinite(factor) or factor < 0:
            raise TrainingError(
                f"train.decay returned {factor!r} for step {after} of {total}; it must be a number of at least 0"
            )
    elif decay == "linear":
        factor = 1 - progress
    elif decay == "cosine":
        factor = 0.5 * (1 + math.cos(math.pi * progress))
    return base * (min_ratio + (1 - min_ratio) * factor)


def list_trained(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that an optimizer of `module` trains, by name: all that are not frozen."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def build_optimizer(
    model: torch.nn.Module,
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    build: BuildOptimizer | None = None,
    computes_in: torch.dtype | None = None,
) -> torch.optim.Optimizer:
    """Build AdamW, or the optimizer from `build`; weight decay applies to matrices only, not to norms and biases.

    Parameters in a short format get float32 masters (`training/masters.py`), on which the optimizer steps.
    `computes_in` is the format of forward and backward passes, None that of the parameters; float16 gets a loss scale.
    """
    trained = list(list_trained(model).values())
    keep_masters(trained)
    stepped = [find_master(parameter) for parameter in trained]
    matrices, vectors = [p for p in stepped if p.ndim >= 2], [p for p in stepped if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if build is None:
        # One pass over each tensor instead of one per operation takes a quarter of the time.
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)
    else:
        optimizer = build([group for group in groups if group["params"]], lr)
    follow_masters(optimizer, trained)
    if (computes_in or next(model.parameters()).dtype) is torch.float16:
        add_loss_scale(optimizer)
    return optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The result of an update."""

    norm: float | None
    """Gradient norm before clipping; None if float16 gradients overflowed and nothing was changed."""
    changes: Changes
    """Changes of this process's rows."""

    @property
    def totals(self) -> dict[str, float]:
        """Return the sums to be added over ranks for `describe_update`."""
        changes = self.changes
        return {
            CHANGED: changes.changed,
            SERVED: changes.served,
            SHORT: changes.short,
            DRIVEN: changes.driven,
            STEP: changes.step,
            SIZE: changes.size,
        }


def describe_update(update: Update, totals: Mapping[str, float]) -> dict[str, Metric]:
    """Return the metrics of an update, whose `totals` are summed over ranks. If no weight had a gradient, the share is
    absent."""
    metrics: dict[str, Metric] = {}
    if update.norm is None:
        metrics["train/skipped_updates"] = Sum(1)
    else:
        metrics["train/grad_norm"] = Mean(update.norm)
    if totals[DRIVEN]:
        metrics["train/changed_share"] = Mean(totals[CHANGED], totals[DRIVEN])
    if totals[SHORT]:
        metrics["train/served_share"] = Mean(totals[SERVED], totals[SHORT])
    if totals[SIZE] and update.norm is not None:
        metrics["train/relative_update"] = Mean(math.sqrt(totals[STEP] / totals[SIZE]))
    return metrics


def apply_gradients(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, lr: float, max_grad_norm: float
) -> Update:
    """Clip, step, clear; see `apply_together`."""
    return apply_together([(model, optimizer, lr)], max_grad_norm=max_grad_norm)


def apply_together(
    parts: Sequence[tuple[torch.nn.Module, torch.optim.Optimizer, float]], *, max_grad_norm: float
) -> Update:
    """Clip the gradients of every `(model, optimizer, learning rate)`, each by its own norm, then step and clear all.

    Returns the update of the first part, whose loss scale applies to all. Raises TrainingError, with all weights
    unchanged and all gradients cleared, if a norm is not finite, unless the loss has a scale to lower.
    """
    first = parts[0][1]
    scale = find_scale(first)
    norms = [_clip(model, max_grad_norm, scale) for model, _, _ in parts]
    wrong = [norm for norm in norms if not math.isfinite(norm)]
    if wrong:
        _clear(parts)
        if scale is not None and scale > 1:
            note_update(first, overflowed=True)
            return Update(norm=None, changes=Changes())
        raise TrainingError(
            f"the gradient norm is {wrong[0]}; the weights were not changed. Lower the learning rate or resume from "
            "the last checkpoint"
        )
    sample = ChangeSample(parts[0][0].parameters())
    for _, optimizer, lr in parts:
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
    changes = sample.count()
    _clear(parts)
    if scale is not None:
        note_update(first, overflowed=False)
    return Update(norm=norms[0], changes=changes)


def _clear(parts: Sequence[tuple[torch.nn.Module, torch.optim.Optimizer, float]]) -> None:
    for _, optimizer, _ in parts:
        optimizer.zero_grad(set_to_none=True)


def _clip(model: torch.nn.Module, max_grad_norm: float, scale: float | None) -> float:
    """Scale the gradients, after dividing them by `scale`, to a norm of at most `max_grad_norm`. Returns their previous
    norm, over all ranks."""
    stepped = [find_master(parameter) for parameter in model.parameters()]
    if scale is not None:
        for parameter in stepped:
            if parameter.grad is not None:
                parameter.grad /= scale
    norm = torch.nn.utils.clip_grad_norm_(stepped, max_grad_norm)
    return float(norm.full_tensor() if is_cut(norm) else norm)
