"""The keyword arguments of the family `relay`."""

from __future__ import annotations

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.relay.environment import Channel, TeamCredit


class RelayArguments(FamilyArguments):
    """Two agents that each hold half of what is asked, and exchange short messages.

    There are no tools, so what limits them is not read.
    """

    channel: Channel = "open"
    """"open", or a control that must fail: "scrambled" or "silent" (see `Rules`)."""
    credit: TeamCredit = "shared"
    """What A is rewarded with: the team's reward, or that less what the team would have got otherwise (see `Rules`)."""
    resamples: int = Field(2, ge=1, le=64)
    """How often "counterfactual" credit draws A's message again."""
    max_message_words: int = Field(3, ge=1, le=100)
    """Words a message may have; a longer one ends the episode without success."""
    naive_right: Share = 0.4
    """Probability with which each step of the naive policy asks, tells or answers what it should."""
