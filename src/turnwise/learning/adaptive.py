"""Adapts the coefficients of the reference divergence and of the entropy bonus to what a step measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from turnwise.algorithms.entropy import update_entropy_coefficient
from turnwise.algorithms.kl import update_kl_coefficient
from turnwise.config.loss import LossSection
from turnwise.core.errors import TrainingError, boundary
from turnwise.core.metrics import Mean, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Values of the adaptive coefficients."""

    kl: float
    entropy: float

    def to_json(self) -> dict[str, float]:
        """Return the values as a checkpoint stores them."""
        return asdict(self)


def adapts(loss: LossSection) -> bool:
    """Return whether any coefficient changes during the run."""
    return loss.kl.target > 0 or loss.entropy_target > 0


def start_coefficients(loss: LossSection) -> Coefficients:
    """Return the coefficients of the first step."""
    return Coefficients(kl=loss.kl.coefficient, entropy=loss.entropy_coefficient)


def adapt_coefficients(
    coefficients: Coefficients, loss: LossSection, metrics: Mapping[str, Metric], *, num_samples: int
) -> Coefficients:
    """Return the coefficients of the next step.

    The KL coefficient follows `train/kl_reference` (nats per trained token), the entropy coefficient `train/entropy`.
    Raises TrainingError if a measurement is not finite.
    """
    kl, entropy = coefficients.kl, coefficients.entropy
    with boundary(TrainingError, "loss.kl.target and loss.entropy_target"):
        if loss.kl.target > 0:
            kl = update_kl_coefficient(
                kl,
                _mean(metrics, "train/kl_reference"),
                target=loss.kl.target,
                horizon=loss.kl.horizon,
                num_samples=num_samples,
            )
        if loss.entropy_target > 0:
            entropy = update_entropy_coefficient(
                entropy,
                _mean(metrics, "train/entropy"),
                target=loss.entropy_target,
                step=loss.entropy_step,
                max_coefficient=loss.max_entropy_coefficient,
            )
    return Coefficients(kl=kl, entropy=entropy)


def _mean(metrics: Mapping[str, Metric], name: str) -> float:
    metric = metrics[name]
    if not isinstance(metric, Mean):
        raise TypeError(f"{name} is a {type(metric).__name__}, not a mean")
    return metric.value
