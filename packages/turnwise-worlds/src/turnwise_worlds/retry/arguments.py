"""The keyword arguments of the family `retry`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share

Feedback = Literal["example", "bit"]
ReflectionSwitch = Literal["kept", "none", "shuffled"]


class RetryArguments(FamilyArguments):
    """Calls in an unknown convention, with a reflection and a second attempt after a failure (arXiv 2505.24726).

    There are no tools, so the limits of tools are not read.
    """

    attempts: int = Field(2, ge=1, le=2)
    """Attempts per call; 1 measures the first attempt."""
    feedback: Feedback = "example"
    """What is revealed about a failure: "example" shows another letter and its converted form, "bit" nothing."""
    reflection: ReflectionSwitch = "kept"
    """"kept", or a control: the retry sees no reflection ("none"), or that of another failed episode ("shuffled")."""
    max_reflection_words: int = Field(1, ge=1, le=10_000)
    """Most words of a reflection; a longer one ends the episode without success."""
    naive_insight: Share = 0.45
    """Probability with which the naive policy reads the example; otherwise it blames the usual suspect."""
