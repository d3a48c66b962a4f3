"""The keyword arguments of the family `plan`."""

from __future__ import annotations

from typing import Literal

from turnwise.environments.arguments import FamilyArguments, Share

PlanSwitch = Literal["own", "given", "shuffled", "swapped", "none"]
SuccessSwitch = Literal["answer", "followed"]


class PlanArguments(FamilyArguments):
    """Questions that need two look-ups in the right order.

    There are no tools, so the limits of tools are not read.
    """

    plan: PlanSwitch = "own"
    """The plan shown to the actor: "own" the planner's plan, "given" the right one, "swapped" the planner's with its
    two relations exchanged, "shuffled" that of another question, "none" no relation. All have equally many words."""
    success: SuccessSwitch = "answer"
    """What counts as success in an evaluation: a right answer, or calls that follow the shown plan."""
    naive_order: Share = 0.5
    """Probability with which the naive planner puts the two relations in the right order."""
