"""Events of a run, as recorders receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["cpt", "sft", "rollout", "train", "evaluate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBegins:
    """The run entered a phase."""

    phase: Phase
    total: int | None = None
    """Number of steps in the phase; None where steps are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnds:
    """A supervised or RL step, or an evaluation, is over."""

    step: int
    phase: Phase
    values: Mapping[str, float]
    """Metrics by name (see `core.metrics`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEnds:
    """A group was trained or dropped."""

    draw: int
    fate: str
    """"trained", or the name of a `DropReason`."""
    rewards: tuple[float | None, ...]
    version: int
    """The weight version when the group started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An evaluation is over."""

    step: int
    label: str
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A message for a person to read."""

    kind: str
    """"device", "parity", "alarm", "resumed", ..."""
    text: str


Event = PhaseBegins | StepEnds | GroupEnds | Evaluated | Note
