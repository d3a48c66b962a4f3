"""Where tasks come from and how their tools are limited."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class EnvironmentSection(Section):
    """The environment family."""

    name: str = "search_qa"
    """A built-in family, or the import path "package.module:Class" of your own."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table of keyword arguments of the family; it refuses what it does not know."""
    tool_timeout_s: float = Field(10.0, gt=0)
    """Seconds one tool call may take."""
    max_observation_chars: int = Field(4000, ge=16)
    """A tool's output longer than this is cut, with a marker."""
