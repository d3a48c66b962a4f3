"""Sections of report.html that installed packages add: entry points of the group `turnwise.report_sections`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from turnwise.config.shown import ShownRecipe
from turnwise.core.errors import ConfigError, TurnwiseError, boundary
from turnwise.core.extensions import Extension, list_extensions
from turnwise.reporting.summaries import Summary
from turnwise.store.run_folder import RunFolder

GROUP = "turnwise.report_sections"
"""An entry point is a `Section`; its name is the section's id in the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The data of a run that a section can read."""

    run: RunFolder
    recipe: ShownRecipe
    metrics: Sequence[Mapping[str, Any]]
    """One row per step and phase, as in metrics.jsonl."""
    summaries: Sequence[Summary]
    """The run's own evaluations, by step, controls last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the report."""

    title: str
    draw: Callable[[Reported], str]
    """HTML, in which other people's text is escaped; "" leaves the section out. The page lets nothing load or run."""


def draw_installed(reported: Reported, taken: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Id, title and content of every section that packages add. A section that fails is replaced by the error.

    `taken` are the ids of the report's own sections.
    """
    for extension in list_extensions(GROUP):
        try:
            yield _draw(extension, reported, taken)
        except TurnwiseError as cause:
            name = f"{extension.name} of {' and '.join(extension.owners)}"
            yield f"failed-{escape(extension.name)}", escape(name), f"<p>Cannot be drawn: {escape(str(cause))}</p>"


def _draw(extension: Extension, reported: Reported, taken: Collection[str]) -> tuple[str, str, str]:
    if extension.name in taken:
        raise ConfigError(f"{extension.name!r} is a section of the report's own; rename it")
    section = extension.load()
    if not isinstance(section, Section):
        raise ConfigError(f"{extension.paths[0]} is a {type(section).__name__}; name a Section(title=..., draw=...)")
    with boundary(ConfigError, extension.paths[0]):
        content = section.draw(reported)
    if not isinstance(content, str):
        raise ConfigError(f"{extension.paths[0]} returned a {type(content).__name__}; return HTML as text")
    return escape(extension.name), escape(section.title), content
