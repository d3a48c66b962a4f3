"""Coefficients that follow what a step measured: of the reference divergence and of the entropy bonus."""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.algorithms.entropy import update_entropy_coefficient
from turnwise.algorithms.kl import update_kl_coefficient
from turnwise.config.run import RunConfig
from turnwise.core.errors import TrainingError, boundary
from turnwise.core.metrics import Mean, Metric


def adapts(config: RunConfig) -> bool:
    """Whether any coefficient moves during the run."""
    return config.loss.kl.target > 0 or config.loss.entropy_target > 0


def read_coefficients(config: RunConfig) -> dict[str, float]:
    """The values of the coefficients that may move."""
    return {"kl": config.loss.kl.coefficient, "entropy": config.loss.entropy_coefficient}


def set_coefficients(config: RunConfig, coefficients: Mapping[str, float]) -> RunConfig:
    """The recipe with these coefficients (see `read_coefficients`)."""
    kl = config.loss.kl.model_copy(update={"coefficient": coefficients["kl"]})
    loss = config.loss.model_copy(update={"kl": kl, "entropy_coefficient": coefficients["entropy"]})
    return config.model_copy(update={"loss": loss})


def adapt_coefficients(config: RunConfig, metrics: Mapping[str, Metric], *, num_samples: int) -> RunConfig:
    """The recipe for the next step; `config` itself where nothing moves.

    The KL coefficient follows `train/kl_reference` (nats per trained token), the entropy coefficient `train/entropy`.
    Raises TrainingError when a measurement is not finite.
    """
    loss = config.loss
    coefficients = read_coefficients(config)
    with boundary(TrainingError, "loss.kl.target and loss.entropy_target"):
        if loss.kl.target > 0:
            coefficients["kl"] = update_kl_coefficient(
                coefficients["kl"],
                _mean(metrics, "train/kl_reference"),
                target=loss.kl.target,
                horizon=loss.kl.horizon,
                num_samples=num_samples,
            )
        if loss.entropy_target > 0:
            coefficients["entropy"] = update_entropy_coefficient(
                coefficients["entropy"],
                _mean(metrics, "train/entropy"),
                target=loss.entropy_target,
                step=loss.entropy_step,
                max_coefficient=loss.max_entropy_coefficient,
            )
    return set_coefficients(config, coefficients) if adapts(config) else config


def _mean(metrics: Mapping[str, Metric], name: str) -> float:
    metric = metrics[name]
    if not isinstance(metric, Mean):
        raise TypeError(f"{name} is a {type(metric).__name__}, not a mean")
    return metric.value
