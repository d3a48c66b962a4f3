"""Judges of a run: what `[judges.NAME]` says about each."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class JudgeSection(Section):
    """One judge, which an environment asks by the name of its table."""

    kind: str
    """"api": a model behind an OpenAI-style API. "frozen": a checkpoint that the run loads. Any other judge: a name
    that an installed package offers, or the import path "package.module:NAME" of its row or function
    (docs/extending.md)."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table of the kind's options; it refuses what it does not know."""
    max_concurrent: int = Field(8, ge=1)
    """Most questions that the judge has at once; further ones wait."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds that one attempt at a verdict may take."""
    max_retries: int = Field(2, ge=0)
    """How often a question without a verdict is asked again, each time with another seed, before the reward is
    Invalid."""
