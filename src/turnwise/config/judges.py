"""Judges of a run: what `[judges.NAME]` says about each."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class JudgeSection(Section):
    """One judge, which an environment asks by the name of its table."""

    kind: str
    """"api": a model behind an OpenAI- or Anthropic-style API. "frozen": a checkpoint that the run loads. "policy": the
    policy that learns. "ensemble" and "debate": made of other judges of the recipe. Any other judge: a name that an
    installed package offers, or the import path "package.module:NAME" of its row or function (docs/extending.md)."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table of the kind's options; it refuses what it does not know."""
    max_concurrent: int = Field(8, ge=1)
    """Most questions that the judge has at once; further ones wait."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds that one attempt at a verdict may take."""
    max_retries: int = Field(2, ge=0)
    """How often a question without a verdict is asked again, each time with another seed, before the reward is
    Invalid."""
    cache: int = Field(4096, ge=0)
    """Most verdicts that are kept: an equal question, also of another episode, has an equal verdict. 0 asks each time,
    for a judge that should not repeat itself."""
    prompt_price: float = Field(0.0, ge=0)
    """Price of a million tokens that the judge reads, in any currency."""
    reply_price: float = Field(0.0, ge=0)
    """Price of a million tokens that it writes."""
    budget: float | None = Field(None, gt=0)
    """Most that the judge may cost in the run, by these prices; further questions have no verdict, so that rewards are
    Invalid and the run ends by rollout.max_invalid_share."""
    labels: str = ""
    """JSONL of questions whose right verdicts are known, which the judge is asked before the run (docs/judges.md)."""
    min_kappa: float | None = Field(None, ge=-1, le=1)
    """Least agreement with `labels`, as Cohen's kappa; a judge below it is refused before the run."""
