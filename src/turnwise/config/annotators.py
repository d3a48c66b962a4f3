"""What is measured on finished trajectories besides what the credit method asks for: what `[annotators.NAME]` says."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class AnnotatorSection(Section):
    """One annotator, by the name of its table: one that `credit.method` asks for, to give it options, or one more."""

    kind: str = ""
    """A name that an installed package offers, or the import path "package.module:NAME" of its row, or of a function of
    a group (docs/extending.md). Empty takes the table's name."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table of the kind's options; it refuses what it does not know."""
