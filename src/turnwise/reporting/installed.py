"""Sections of report.html that installed packages add: entry points of the group `turnwise.report_sections`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from turnwise.config.shown import ShownRecipe
from turnwise.core.errors import ConfigError, TurnwiseError, boundary
from turnwise.core.offers import find_offer, import_object, list_offers
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
    for name in dict.fromkeys(offer.name for offer in list_offers(GROUP)):
        try:
            yield _draw(name, reported, taken)
        except TurnwiseError as cause:
            yield f"failed-{escape(name)}", escape(name), f"<p>Cannot be drawn: {escape(str(cause))}</p>"


def _draw(name: str, reported: Reported, taken: Collection[str]) -> tuple[str, str, str]:
    key = "report section"
    offer = find_offer(GROUP, name, key=key, takes_path=False)
    assert offer is not None  # `name` is one of the offers
    what = f"{key}={name!r} of the package {offer.package}"
    if name in taken:
        raise ConfigError(f"{what} has the same name as a built-in section; rename it")
    section = import_object(key, name, offer)
    if not isinstance(section, Section):
        raise ConfigError(f"{what} is a {type(section).__name__}; it must be a Section(title=..., draw=...)")
    title: object = section.title
    if not isinstance(title, str):
        raise ConfigError(f"{what} has the title {title!r}; it must be text")
    with boundary(ConfigError, what):
        content = section.draw(reported)
    if not isinstance(content, str):
        raise ConfigError(f"{what} returned a {type(content).__name__}; return HTML as text")
    return escape(name), escape(title), content
