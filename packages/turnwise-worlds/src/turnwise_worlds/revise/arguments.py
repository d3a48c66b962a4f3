"""The keyword arguments of the family `revise`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share
from turnwise_worlds.revise.sums import BASE, NUM_DIGITS

Measure = Literal["second", "first", "fixed", "broken", "edited"]
"""Measures of an episode: the second or the first answer is right; a wrong answer became right, or a right one wrong;
the answers differ."""
Weight = Annotated[float, Field(ge=0, le=1000)]


class ReviseArguments(FamilyArguments):
    """Sums that are answered twice, without information in between (SCoRe, arXiv 2409.12917).

    There are no tools, so the limits of tools are not read.
    """

    problems: int = Field(64, ge=1, le=BASE**NUM_DIGITS // 4)
    """Number of training problems, the same throughout training."""
    practice: Share = 0.0
    """Share of the training tasks that are other problems, for which the naive policy knows no first answer."""
    show_training: bool = False
    """Whether an evaluation plays training problems instead of its own."""
    first_reward: Weight = 1.0
    """Reward of a right first answer."""
    progress_reward: Weight = 0.0
    """Weight of the change, SCoRe's alpha: the second answer's reward for correcting a wrong first answer, and its
    penalty for the opposite."""
    measure: Measure = "second"
    """What counts as success: "second" or "first" answer right, "fixed", "broken", "edited"."""
    naive_known: Share = 0.6
    """Probability with which the naive policy knows the first answer to a training problem."""
    naive_work: Share = 0.3
    """Probability with which it works out its second answer; otherwise it repeats the first."""
    naive_slip: Share = 0.12
    """Probability of a slip in each step of its work."""
