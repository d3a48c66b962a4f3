"""One row of the table of annotators, and the parts from which an annotator is built."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from turnwise.config.section import Section
from turnwise.core.batch import Wanted
from turnwise.core.judging import Judge
from turnwise.core.protocols import Annotator, EnvironmentFamily, Renderer
from turnwise.core.types import Draw, Sample, Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ScoreSamples(Protocol):
    """Scores samples under the policy."""

    async def __call__(
        self, samples: Sequence[Sample], column: Wanted = "policy_logprobs", /
    ) -> Sequence[NDArray[Any]]:
        """Return one array `[K_i]` per sample, over its trained tokens: their log-probabilities, or another of
        `core.batch.Columns`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorParts:
    """The parts of a run that an annotator may use."""

    family: EnvironmentFamily
    renderer: Renderer
    run_greedy: Callable[[Draw], Awaitable[Trajectory]]
    """Runs one attempt at the draw's task at temperature 0."""
    score: ScoreSamples
    tokenizer: PreTrainedTokenizerBase
    judges: Mapping[str, Judge] = field(default_factory=dict)
    """The recipe's judges, by name."""
    options: Any = None
    """An object of the row's `options`, or the recipe's table if the row has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorKind:
    """One row of the table of annotators, named in `CreditMethod.annotators` or by `[annotators.NAME]` of a recipe: a
    built-in one, one from an installed package, or the import path "package.module:NAME"."""

    name: str
    fills: str
    """The field of `CreditTrajectory` or `CreditTurn` from which credit reads it."""
    needs_baseline: bool = False
    """Whether a group is dropped if its greedy baseline failed."""
    needs_gold_answers: bool = False
    """Whether the family must say which answers are right (`GoldAnswers`)."""
    options: type[Section] | None = None
    """What `annotators.NAME.options` may hold; None leaves the options, unchecked, to `build`."""
    build: Callable[[AnnotatorParts], Annotator]
