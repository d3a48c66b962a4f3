"""The keyword arguments of the family `lean`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from turnwise.environments.arguments import Seconds, check_unread
from turnwise_worlds.proving.arguments import ProvingArguments

Mode = Literal["generated", "files"]


class LeanArguments(ProvingArguments):
    """Theorems that are proved in Lean, tactic by tactic."""

    mode: Mode = "generated"
    """Where theorems come from: the propositional ones of the family `proofs`, or those of `train_path` and
    `heldout_path`."""
    command: list[str] = Field(default_factory=lambda: ["repl"])
    """What starts the REPL (github.com/leanprover-community/repl) inside the sandbox."""
    visible: list[str] = Field(default_factory=list)
    """Folders that the sandbox shows to it, read-only: those of Lean, of the REPL, and of what theorems import."""
    tactic_timeout_s: Seconds = 30.0
    """Most seconds that one tactic may take; a tactic that takes longer has no effect."""
    memory_mib: int = Field(8192, ge=128, le=2**20)
    """Most memory of the REPL, in MiB; a tactic that needs more has no effect."""

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.mode == "generated":
            check_unread(self, ("train_path", "heldout_path", "max_bad_rows"), self.mode)
        return self
