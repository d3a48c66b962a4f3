"""Which tasks of the training split are drawn, and how often."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class CurriculumSection(Section):
    """Which task is drawn next (docs/curriculum.md)."""

    sampler: str = "order"
    """"order": the tasks in the order of the split, each once. "uniform", "difficulty", "value", "progress", "plr":
    samplers that tell kinds of tasks apart or draw tasks again. Any other one: a name that an installed package offers,
    or the import path "package.module:NAME" of its row, or of a function (docs/extending.md)."""
    metric: str = "reward"
    """What counts as an attempt's result: "reward", or a part of the reward such as "success"."""
    by: str = "kind"
    """Field of a task's payload that tells kinds of tasks apart, such as "kind" or "level"; "environment" tells the
    environments of a mixture apart."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table of the sampler's options; it refuses what it does not know."""
