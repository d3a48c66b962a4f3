"""Where tasks come from and how their tools are limited."""

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
    """A built-in family, the name of an installed one, or the import path "package.module:Class" of your own: a family,
    or a plain class with `reset` and tools. Not read where there is a mixture."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table of keyword arguments of the family; it refuses what it does not know. Not read where there is a
    mixture."""
    mixture: dict[str, MixtureMember] = Field(default_factory=dict)
    """Several families in one run, by label: their tasks are interleaved by weight. Empty is the one family of
    environment.name."""
    max_left_out: float = Field(0.05, ge=0, le=1)
    """Largest share of tasks that cannot be played (their family fails at a row, or their opening has no room in
    rollout.max_tokens): they are named, counted and replaced. More end the run; the share counts from 100 tasks."""
    tool_timeout_s: float | None = Field(None, gt=0)
    """Seconds one tool call may take; None is the family's own default: 10, and more where calls wait for a sandbox."""
    max_observation_chars: int | None = Field(None, ge=16)
    """A tool's output longer than this is cut, with a marker; None is the family's own default, mostly 4,000."""
