"""The keyword arguments of the family `debate`."""

from __future__ import annotations

from turnwise.environments.arguments import FamilyArguments, Share
from turnwise.environments.debate.environment import Protocol


class DebateArguments(FamilyArguments):
    """Debaters who quote dated lines before a judge that sees only what the quotes show.

    There are no tools, so what limits them is not read.
    """

    protocol: Protocol = "debate"
    """Who quotes: "debate", "consultancy", "given", "hard" or "none" (see `Rules`)."""
    verify: bool = True
    """Whether a quote must be a line of the record; false is a control that must fail."""
    swap: bool = False
    """Whether A and B are exchanged in every case."""
    naive_right: Share = 0.6
    """Probability with which the naive judge decides by the latest quote that supports a side; else by the last it
    read."""
    naive_fabricated: Share = 0.1
    """Share of the naive debaters' quotes that are made up; the others are any lines of the record."""
