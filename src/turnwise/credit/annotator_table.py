"""The table of annotators, and the lookup of the names in a credit method's `annotators` and of a recipe's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from turnwise.config.annotators import AnnotatorSection
from turnwise.config.engine_kinds.kind import read_options
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.offers import find_row
from turnwise.core.protocols import Annotator
from turnwise.core.threads import run_method
from turnwise.core.types import TrajectoryGroup
from turnwise.credit.annotator_kind import AnnotatorKind, AnnotatorParts
from turnwise.credit.gold_answers import ANSWER_PROBABILITY
from turnwise.credit.greedy_baseline import GREEDY_BASELINE

ANNOTATORS: dict[str, AnnotatorKind] = {kind.name: kind for kind in (GREEDY_BASELINE, ANSWER_PROBABILITY)}
"""Every built-in annotator by name."""
GROUP = "turnwise.annotators"
"""Entry-point group in which an installed package names its annotators."""


@dataclass(frozen=True, slots=True)
class FunctionAnnotator:
    """Implements `Annotator` with a plain function of a group, sync or `async`."""

    function: Callable[..., Any]

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """Return the function's result. Raises what it raises."""
        annotated: TrajectoryGroup = await run_method(self.function, group)
        return annotated


def find_annotators(
    asked: Sequence[str], method: str, sections: Mapping[str, AnnotatorSection]
) -> dict[str, AnnotatorKind]:
    """Return the annotators by name: those that a credit method asks for, then the recipe's others.

    Raises ConfigError for one that leads nowhere, and where the recipe gives one that is asked for another kind."""
    for name in asked:
        if name in sections and sections[name].kind not in ("", name):
            raise ConfigError(
                f"annotators.{name}.kind={sections[name].kind!r}, but credit.method={method!r} asks for the annotator "
                f"{name!r}; leave kind out, or name the table differently"
            )
    found = {name: find_annotator(name, key=f"credit.method={method!r}: annotator") for name in asked}
    for name, section in sections.items():
        if name not in found:
            found[name] = find_annotator(section.kind or name, key=f"annotators.{name}.kind")
    return found


def build_annotator(kind: AnnotatorKind, parts: AnnotatorParts, *, name: str, section: AnnotatorSection) -> Annotator:
    """Build an annotator with the recipe's options. Raises ConfigError for an unknown option or a wrong value."""
    where, options = f"annotators.{name}", section.options
    if kind.options is not None:
        parts = replace(parts, options=read_options(kind.name, kind.options, options, where=where))
    else:
        parts = replace(parts, options=options)
    with boundary(ConfigError, f"annotator {name!r} cannot be built"):
        return kind.build(parts)


def find_annotator(name: str, *, key: str) -> AnnotatorKind:
    """Return the row that `key` = `name` leads to; a plain function of a group becomes a row.

    Raises ConfigError naming `key` for a name that does not lead to an annotator."""

    def wrap(function: Callable[..., Any]) -> AnnotatorKind:
        return AnnotatorKind(
            name=name,
            fills="",
            build=lambda parts: FunctionAnnotator(partial(function, **(parts.options or {}) if parts else {})),
        )

    return find_row(key, name, AnnotatorKind, group=GROUP, built_in=ANNOTATORS, wrap=wrap)
