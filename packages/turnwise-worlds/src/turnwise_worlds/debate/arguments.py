"""The keyword arguments of the family `debate`."""

from __future__ import annotations

from typing import Literal

from turnwise.environments.arguments import FamilyArguments, Share

Protocol = Literal["debate", "consultancy", "given", "hard", "none"]


class DebateArguments(FamilyArguments):
    """Debaters who quote dated lines to a judge that sees only what the quotes show.

    There are no tools, so the limits of tools are not read.
    """

    protocol: Protocol = "debate"
    """"debate": two debaters; "consultancy": `first` alone, right or wrong. With the other protocols only the judge
    speaks: "given" quotes random lines, "hard" the latest line of either side and irrelevant ones, "none" nothing."""
    verify: bool = True
    """Whether a quote must be a line of the record; false is a control that must fail."""
    swap: bool = False
    """Whether A and B are exchanged in every case; results must not change."""
    naive_right: Share = 0.35
    """Probability with which the naive policy quotes the latest line of its own side, and decides by the rule."""
    naive_fabricated: Share = 0.2
    """Share of the naive debaters' quotes that are made up; the other quotes are the oldest line of the record."""
