"""The table of annotators, and the lookup of the names in a credit method's `annotators`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.offers import describe_offers, load_row
from turnwise.core.threads import run_method
from turnwise.core.types import TrajectoryGroup
from turnwise.credit.annotator_kind import AnnotatorKind
from turnwise.credit.gold_answers import ANSWER_PROBABILITY
from turnwise.credit.greedy_baseline import GREEDY_BASELINE

ANNOTATORS: dict[str, AnnotatorKind] = {kind.name: kind for kind in (GREEDY_BASELINE, ANSWER_PROBABILITY)}
"""Every built-in annotator by name."""
GROUP = "turnwise.annotators"
"""Entry-point group in which an installed package names its annotators."""


@dataclass(frozen=True, slots=True)
class FunctionAnnotator:
    """Implements `Annotator` with a plain function of a group, sync or `async`."""

    function: Callable[[TrajectoryGroup], Any]

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """Return the function's result. Raises what it raises."""
        annotated: TrajectoryGroup = await run_method(self.function, group)
        return annotated


def find_annotator(name: str, *, method: str) -> AnnotatorKind:
    """Return the row that an entry of `CreditMethod.annotators` names; a plain function of a group becomes a row.

    Raises ConfigError naming the credit `method` for an entry that does not lead to an annotator."""
    key = f"credit.method={method!r}: annotator"
    found = load_row(key, name, AnnotatorKind, group=GROUP, built_in=ANNOTATORS)
    if isinstance(found, AnnotatorKind):
        return replace(found, name=name)
    if found is not None:
        function = found
        return AnnotatorKind(name=name, fills="", build=lambda parts: FunctionAnnotator(function))
    if name in ANNOTATORS:
        return ANNOTATORS[name]
    raise ConfigError(
        f"{key}={name!r} is neither one of {', '.join(ANNOTATORS)}{describe_offers(GROUP)} nor an import path"
    )
