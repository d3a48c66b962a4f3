"""The keyword arguments that families of provers share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Seconds, Share
from turnwise.environments.file_splits import MAX_BAD_ROWS

Shown = Literal["own", "hidden", "shuffled"]


class ProvingArguments(FamilyArguments):
    """Theorems that are proved tactic by tactic in a prover outside this process."""

    train_path: str = ""
    """Theorems to train on: a JSONL file of rows, or a folder of the prover's files."""
    heldout_path: str = ""
    """Theorems that are held out."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named by file and line. With
    more, the run does not start."""
    budget: int = Field(16, ge=1, le=1000)
    """How many replies an episode has for a theorem without a known script."""
    shown: Shown = "own"
    """What the policy sees of a state: "own", or a control: "hidden", nothing, or "shuffled", hypotheses under names
    that are not theirs."""
    tactic_timeout_s: Seconds = 2.0
    """Most seconds that one tactic may take, in steps of one; a tactic that takes longer has no effect."""
    memory_mib: int = Field(1024, ge=128, le=2**20)
    """Most memory of a prover, in MiB; a tactic that needs more has no effect."""
    tool_timeout_s: Seconds = 600.0
    """Most seconds that a call or the check of a proof may take, including the wait for a free prover."""
