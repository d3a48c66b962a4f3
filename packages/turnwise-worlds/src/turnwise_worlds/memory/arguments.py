"""The keyword arguments of the family `memory` that all styles share."""

from __future__ import annotations

from typing import Literal

from turnwise.environments.arguments import FamilyArguments, Share

Style = Literal["chunks", "operations", "rolling", "fold"]
MemorySwitch = Literal["kept", "erased"]


class MemoryArguments(FamilyArguments):
    """Arguments of every style; each style's own section adds to them."""

    style: Style = "chunks"
    """How the policy remembers: a memory rewritten with every chunk ("chunks"), a bounded store of lines that are
    added, updated and deleted ("operations"), a note from which a full context restarts ("rolling"), or branches of
    which only the returned message stays ("fold")."""
    naive_keep: Share = 0.4
    """Probability with which the naive policy takes the action that keeps the memory in order."""
