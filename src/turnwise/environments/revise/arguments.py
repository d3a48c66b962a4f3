"""The keyword arguments of the family `revise`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.revise.sums import BASE, NUM_DIGITS

Measure = Literal["second", "first", "fixed", "broken", "edited"]
"""Of an episode: the second or the first answer is right; a wrong one became right, a right one wrong; they differ."""
Weight = Annotated[float, Field(ge=0, le=1000)]


class ReviseArguments(FamilyArguments):
    """Sums that are answered twice, with nothing told in between (SCoRe, arXiv 2409.12917).

    There are no tools, so what limits them is not read.
    """

    problems: int = Field(64, ge=1, le=BASE**NUM_DIGITS // 4)
    """Training problems, the same all through training."""
    practice: Share = 0.0
    """Share of the training tasks that are other problems, of which the naive policy knows no first answer."""
    show_training: bool = False
    """Whether an evaluation plays training problems in the place of its own."""
    first_reward: Weight = 1.0
    """Reward of a right first answer."""
    progress_reward: Weight = 0.0
    """Weight of the change, SCoRe's alpha: the second answer's reward for a wrong one that it put right, and its
    punishment for the opposite."""
    measure: Measure = "second"
    """What counts as success: "second" or "first" answer right, "fixed", "broken", "edited"."""
    naive_known: Share = 0.6
    """Probability with which the naive policy knows the first answer to a training problem."""
    naive_work: Share = 0.3
    """Probability with which it works its second answer out; else it repeats the first."""
    naive_slip: Share = 0.12
    """Probability of a slip in each step of its work."""
