"""The keyword arguments of the family `plan`."""

from __future__ import annotations

from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.plan.environment import PlanSwitch, SuccessSwitch


class PlanArguments(FamilyArguments):
    """Questions that need two look-ups in the right order.

    There are no tools, so what limits them is not read.
    """

    plan: PlanSwitch = "own"
    """What the actor is shown as the plan (see `Rules`)."""
    success: SuccessSwitch = "answer"
    """What counts as success in an evaluation: a right answer, or calls that follow the plan that was shown."""
    naive_order: Share = 0.5
    """Probability with which the naive planner puts the two relations in the right order."""
