"""The keyword arguments of the family `retry`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share

Feedback = Literal["example", "bit"]
ReflectionSwitch = Literal["kept", "none", "shuffled"]


class RetryArguments(FamilyArguments):
    """Calls in an unknown convention, with a reflection and a second attempt after a failure (arXiv 2505.24726).

    There are no tools, so what limits them is not read.
    """

    attempts: int = Field(2, ge=1, le=2)
    """Attempts at a call; 1 measures the first."""
    feedback: Feedback = "example"
    """What is told of a failure: "example" shows another letter and what becomes of it, "bit" nothing."""
    reflection: ReflectionSwitch = "kept"
    """"kept", or a control: the retry sees none ("none"), or that of another episode with a failure
    ("shuffled")."""
    max_reflection_words: int = Field(1, ge=1, le=10_000)
    """Words a reflection may have; a longer one ends the episode without success."""
    naive_insight: Share = 0.45
    """Probability with which the naive policy reads the example; else it blames the usual suspect."""
