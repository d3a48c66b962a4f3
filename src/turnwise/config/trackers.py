"""Experiment trackers that a run is shown in."""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.config.section import Section

TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio", "prometheus")
"""The trackers that come with Turnwise."""


class TensorboardSection(Section):
    """TensorBoard's event files."""

    dir: str = ""
    """Folder in which the run gets its own folder; "" writes to `tensorboard/` in the run folder."""


class WandbSection(Section):
    """Weights & Biases."""

    entity: str = ""
    """User or team; "" is your default."""
    mode: Literal["offline", "online"] = "offline"
    """"offline" writes files that `wandb sync` uploads; "online" needs an account and a network."""


class MlflowSection(Section):
    """MLflow."""

    tracking_uri: str = ""
    """A server or store; "" is the SQLite file `mlflow.db` next to the run folder."""


class TrackersSection(Section):
    """Where the run is shown besides its folder. A tracker that fails or hangs never ends or delays the run."""

    names: list[str] = Field(default_factory=list)
    """Any of "tensorboard", "wandb", "mlflow", "trackio", "prometheus" (a text file in the run folder), or
    "package.module:Class" for your own tracker."""
    project: str = "turnwise"
    """Project name in Weights & Biases and in Trackio (whose database is in the folder set by the environment variable
    TRACKIO_DIR), experiment name in MLflow."""
    transcripts: int = Field(3, ge=0)
    """Transcripts shown per evaluation; 0 shows none."""
    close_timeout_s: float = Field(60.0, gt=0, le=3600)
    """Seconds for all trackers together to finish when the run ends."""
    tensorboard: TensorboardSection = TensorboardSection()
    """TensorBoard's options."""
    wandb: WandbSection = WandbSection()
    """Those of Weights & Biases."""
    mlflow: MlflowSection = MlflowSection()
    """MLflow's options."""

    @model_validator(mode="before")
    @classmethod
    def _take_one_project(cls, values: Any) -> Any:
        """Read run folders in which every tracker has a project of its own. Raises ValueError where these differ."""
        if not isinstance(values, dict) or "trackio" not in values:
            return values
        old = {name: dict(values.get(name, {})) for name in ("wandb", "mlflow", "trackio")}
        names = ((old["wandb"], "project"), (old["mlflow"], "experiment"), (old.pop("trackio"), "project"))
        projects = {section.pop(name, "turnwise") for section, name in names} - {"turnwise"}
        if len(projects) > 1:
            raise ValueError(
                f"trackers can have only one project, not {' and '.join(sorted(projects))}; set trackers.project"
            )
        rest = {name: value for name, value in values.items() if name not in ("trackio", *old)}
        return {"project": next(iter(projects), "turnwise"), **rest, **old}

    @model_validator(mode="after")
    def _check_project(self) -> Self:
        if "wandb" in self.names and (odd := sorted(set(self.project) & set("/\\#?%:"))):
            raise ValueError(
                f"project={self.project!r}: a Weights & Biases project cannot contain {' '.join(odd)}; remove it, and "
                "set a user or team in trackers.wandb.entity"
            )
        return self

    @field_validator("names")
    @classmethod
    def _check_names(cls, names: list[str]) -> list[str]:
        for name in names:
            check_tracker_name(name)
        if len(set(names)) < len(names):
            raise ValueError(f"{names} names a tracker twice; name each only once")
        return names


def check_tracker_name(name: str) -> None:
    """Raise ValueError unless the name is one of `TRACKERS` or an import path `package.module:Class`."""
    if name not in TRACKERS and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        raise ValueError(f"tracker {name!r} is unknown; use one of {', '.join(TRACKERS)}, or package.module:Class")
