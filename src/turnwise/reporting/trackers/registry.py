"""Trackers by name."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import cast

from turnwise.config.trackers import check_tracker_name
from turnwise.core.errors import ConfigError, TrackerError, boundary
from turnwise.core.offers import import_object
from turnwise.reporting.trackers.tracker import Tracker

_CLASSES = {
    "tensorboard": "turnwise.reporting.trackers.tensorboard:TensorboardTracker",
    "wandb": "turnwise.reporting.trackers.wandb:WandbTracker",
    "mlflow": "turnwise.reporting.trackers.mlflow:MlflowTracker",
    "trackio": "turnwise.reporting.trackers.trackio:TrackioTracker",
    "prometheus": "turnwise.reporting.trackers.prometheus:PrometheusTracker",
}
_LOWEST = {"tensorboard": (2, 20), "wandb": (0, 20), "mlflow": (3, 0), "trackio": (0, 30)}
"""Minimum version of each package, as in its extra in `pyproject.toml`; Prometheus' text needs none."""


def build_tracker(name: str) -> Tracker:
    """The tracker for a name or an import path `package.module:Class`; the class is called without arguments.

    Raises:
        ConfigError: no such name; the package is missing or too old; no such class.
        TrackerError: the class raises.
    """
    try:
        check_tracker_name(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if name in _LOWEST:
        _check_package(name)
    build = import_object("tracker", _CLASSES.get(name, name))
    with boundary(TrackerError, f"tracker {name}"):
        return cast(Tracker, build())


def _check_package(name: str) -> None:
    lowest = _LOWEST[name]
    wanted = f"{name}>={'.'.join(map(str, lowest))}"
    remedy = f"install it with: pip install 'turnwise[{name}]'"
    try:
        installed = version(name)
    except PackageNotFoundError:
        raise ConfigError(f"tracker {name} needs the package {wanted}; {remedy}") from None
    numbers = tuple(int(part) for part in installed.split(".")[:2] if part.isdecimal())
    if numbers < lowest:
        raise ConfigError(f"tracker {name} needs the package {wanted}, but {installed} is installed; {remedy}")
