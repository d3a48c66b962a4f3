"""Options of the environment family and the limits of its tools."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class MixtureMember(Section):
    """One family of a mixture; its key in `environment.mixture` is its label in tasks and reports."""

    name: str = ""
    """As environment.name; empty takes the label."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """As environment.args."""
    weight: float = Field(1.0, gt=0)
    """Its share of the tasks is the weight over the sum of all weights."""


class EnvironmentSection(Section):
    """The environment family, or several of them."""

    name: str = "search_qa"
    """Name of a built-in family, or the import path "package.module:Class" of your own."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the family, which refuses unknown ones."""
    tool_timeout_s: float = Field(10.0, gt=0)
    """Longest time of one tool call, in seconds."""
    max_observation_chars: int = Field(4000, ge=16)
    """Longest output of a tool, in characters; longer output is cut, with a marker."""
