"""The keyword arguments of the family `relay`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share

Channel = Literal["open", "scrambled", "silent"]
TeamCredit = Literal["shared", "difference", "counterfactual"]


class RelayArguments(FamilyArguments):
    """Two agents that each hold half of what is asked, and exchange short messages.

    There are no tools, so what limits them is not read.
    """

    channel: Channel = "open"
    """"open", or a control that must fail: "scrambled" keeps the form of every message and draws its content anew,
    "silent" delivers none."""
    credit: TeamCredit = "shared"
    """What A is rewarded with; B gets the team's reward. "shared": the team's. "difference": less the team's where B
    heard nothing. "counterfactual": less the mean of the team's where A's message is drawn again."""
    resamples: int = Field(2, ge=1, le=64)
    """How often "counterfactual" credit draws A's message again."""
    max_message_words: int = Field(3, ge=1, le=100)
    """Words a message may have; a longer one ends the episode without success."""
    naive_right: Share = 0.4
    """Probability with which each step of the naive policy asks, tells or answers what it should."""
