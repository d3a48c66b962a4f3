"""One row of the table of annotators, and what an annotator is built from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from turnwise.core.protocols import Annotator, EnvironmentFamily, Renderer
from turnwise.core.types import Draw, Sample, Trajectory

ScoreSamples = Callable[[Sequence[Sample]], Awaitable[Sequence[NDArray[Any]]]]
"""Log-probabilities of the trained tokens of each sample under the policy, `[K_i]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorParts:
    """What a run gives an annotator."""

    family: EnvironmentFamily
    renderer: Renderer
    run_greedy: Callable[[Draw], Awaitable[Trajectory]]
    """One attempt at temperature 0 at the draw's task."""
    score: ScoreSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorKind:
    """One row of the table of annotators. `CreditMethod.annotators` names it: a built-in one, one that an installed
    package offers, or the import path "package.module:NAME"."""

    name: str
    fills: str
    """The field of `CreditTrajectory` or `CreditTurn` that credit reads it from."""
    needs_baseline: bool = False
    """Whether a group whose greedy baseline failed is dropped."""
    needs_gold_answers: bool = False
    """Whether the family must say which answers are right (`GoldAnswers`)."""
    build: Callable[[AnnotatorParts], Annotator]
