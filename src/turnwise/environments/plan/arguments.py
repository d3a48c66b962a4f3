"""The keyword arguments of the family `plan`."""

from __future__ import annotations

from typing import Literal

from turnwise.environments.arguments import FamilyArguments, Share

PlanSwitch = Literal["own", "given", "shuffled", "swapped", "none"]
SuccessSwitch = Literal["answer", "followed"]


class PlanArguments(FamilyArguments):
    """Questions that need two look-ups in the right order.

    There are no tools, so what limits them is not read.
    """

    plan: PlanSwitch = "own"
    """What the actor is shown: "own" the planner's plan, "given" the right one, "swapped" the planner's with its two
    relations exchanged, "shuffled" that of another question, "none" no relation. All have as many words."""
    success: SuccessSwitch = "answer"
    """What counts as success in an evaluation: a right answer, or calls that follow the plan that was shown."""
    naive_order: Share = 0.5
    """Probability with which the naive planner puts the two relations in the right order."""
