"""The keyword arguments of the family `memory`: what all styles take."""

from __future__ import annotations

from typing import Literal

from turnwise.environments.arguments import FamilyArguments, Share

Style = Literal["chunks", "operations", "rolling", "fold"]
MemorySwitch = Literal["kept", "erased"]


class MemoryArguments(FamilyArguments):
    """What every style takes; each style's own section adds to it."""

    style: Style = "chunks"
    """How the policy remembers: a memory that is written anew with every chunk ("chunks"), a bounded store of lines
    that are added, updated and deleted ("operations"), a note from which a full context starts again ("rolling"),
    or branches of which only the returned message stays ("fold")."""
    naive_keep: Share = 0.4
    """Probability with which the naive policy does what keeps the memory in order."""
