"""What happens in a run, as recorders hear it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["sft", "rollout", "train", "evaluate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBegins:
    """The run turned to something else."""

    phase: Phase
    total: int | None = None
    """Steps the phase will take; None where it is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnds:
    """A supervised or RL step, or an evaluation, is over."""

    step: int
    phase: Phase
    values: Mapping[str, float]
    """Metrics by name (see `core.metrics`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEnds:
    """A group met its fate."""

    draw: int
    fate: str
    """"trained", or the name of a `DropReason`."""
    rewards: tuple[float | None, ...]
    version: int
    """The weight version at its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An evaluation is over."""

    step: int
    label: str
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a person should read."""

    kind: str
    """"device", "parity", "alarm", "resumed", ..."""
    text: str


Event = PhaseBegins | StepEnds | GroupEnds | Evaluated | Note
