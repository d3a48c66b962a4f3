"""Where tasks come from and how their tools are limited."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class MixtureMember(Section):
    """One family of a mixture; its key in `environment.mixture` is its label in tasks and reports."""

    name: str = ""
    """Like environment.name; empty means the label."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """As environment.args."""
    weight: float = Field(1.0, gt=0)
    """Its share of the tasks is the weight over the sum of all weights."""


class EnvironmentSection(Section):
    """The environment family, or several of them."""

    name: str = "search_qa"
    """A built-in family, the name of an installed one, or the import path "package.module:Class" of your own: a family,
    or a plain class with `reset` and tools. Ignored if there is a mixture."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the family, as a table; the family rejects unknown ones. Ignored if there is a mixture."""
    mixture: dict[str, MixtureMember] = Field(default_factory=dict)
    """Several families in one run, by label: their tasks are interleaved by weight. Empty means the single family of
    environment.name."""
    max_left_out: float = Field(0.05, ge=0, le=1)
    """Maximum share of tasks that cannot be played (their family fails at a row, or their opening leaves no room within
    rollout.max_tokens): they are named, counted and replaced. A larger share ends the run; it is checked from 100 tasks
    on."""
    tool_timeout_s: float | None = Field(None, gt=0)
    """Time limit for one tool call in seconds; None is the family's own default: 10, and more if calls wait for a
    sandbox."""
    max_observation_chars: int | None = Field(None, ge=16)
    """Maximum length of a tool's output, which is cut with a marker if longer; None is the family's own default, mostly
    4,000."""
