"""The keyword arguments of the family `relay`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share

Channel = Literal["open", "scrambled", "silent"]
TeamCredit = Literal["shared", "difference", "counterfactual"]


class RelayArguments(FamilyArguments):
    """Two agents that each know half of the facts in question, and exchange short messages.

    There are no tools, so the limits of tools are not read.
    """

    channel: Channel = "open"
    """"open", or a control that must fail: "scrambled" keeps the form of every message but redraws its content,
    "silent" delivers none."""
    credit: TeamCredit = "shared"
    """A's reward; B gets the team's reward. "shared": the team's reward. "difference": that minus the team's reward if
    B hears nothing. "counterfactual": that minus the team's mean reward when A's message is redrawn."""
    resamples: int = Field(2, ge=1, le=64)
    """How often "counterfactual" credit redraws A's message."""
    max_message_words: int = Field(3, ge=1, le=100)
    """Most words of a message; a longer one ends the episode without success."""
    naive_right: Share = 0.4
    """Probability with which each step of the naive policy asks, tells or answers as it should."""
