"""The keyword arguments that the family `research` has in both modes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments
from turnwise_rewards.grounding.ledger import Limits
from turnwise_synthesis.research.reward import ResearchWeights

Mode = Literal["world", "files"]


class ResearchArguments(FamilyArguments):
    """Research on a question, with a report in sections."""

    mode: Mode = "world"
    """"world": generated pages, citations checked exactly. "files": the user's own corpus and questions, citations
    checked by a judge or as quotations."""
    window_words: int = Field(1500, ge=50, le=10_000_000)
    """A context with more words is full; after one more reply the next one starts from the notes."""
    max_contexts: int = Field(40, ge=1, le=10_000)
    """Most contexts of an episode; where another one would open, the episode ends without an answer."""
    memory: Literal["kept", "erased"] = "kept"
    """"kept", or a control that must fail: "erased" shows no notes."""
    limits: Limits | None = None
    """What of a report is read. None: as many claims as are expected twice over, at least 30, with 5 passages each, and
    at most 8 words of a passage in a row in mode "world", whose passages have ten or more, and 25 in mode "files"."""
    max_words: int = Field(40, ge=5, le=10_000)
    """Words of the report per expected claim from which on it earns less."""
    weights: ResearchWeights = ResearchWeights()
    """Weights of the reward."""

    def limits_of(self, expected: int) -> Limits:
        """Return what is read of a report from which so many claims are expected."""
        words = 8 if self.mode == "world" else 25
        return self.limits or Limits(max_claims=max(30, 2 * expected), max_copied_words=words)
