"""The keyword arguments of the family `proofs`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.environments.arguments import FamilyArguments, Share, check_unread, check_weights
from turnwise.environments.file_splits import MAX_BAD_ROWS
from turnwise_worlds.proofs.kinds import KIND_NAMES
from turnwise_worlds.proofs.syntax import Style
from turnwise_worlds.proofs.theorem import Theorem

Mode = Literal["generated", "files"]
Shown = Literal["own", "hidden", "shuffled"]
PROPOSITIONAL_KINDS = ("chain2", "chain3", "split", "cases", "either", "curry", "distractor", "dead_end", "dead_ends")


class ProofsArguments(FamilyArguments):
    """Theorems that are proved tactic by tactic."""

    mode: Mode = "generated"
    """Where theorems come from: made of `kinds`, or the rows of `train_path` and `heldout_path`."""
    train_path: str = ""
    """In mode="files": JSONL rows of theorems to train on."""
    heldout_path: str = ""
    """In mode="files": JSONL rows of theorems that are held out."""
    max_bad_rows: Share = MAX_BAD_ROWS
    """Largest share of a file's rows that may be bad: these are left out, counted and named by file and line. With
    more, the run does not start."""
    kinds: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(PROPOSITIONAL_KINDS, 1.0))
    """Share of each kind of theorem in mode="generated"."""
    style: Style = "terse"
    """How states are shown: "terse", one line for small models, or "full", Coq's, with an explanation."""
    slack: int = Field(2, ge=0, le=1000)
    """How many replies an episode has beyond the known script: an episode that needs more fails."""
    budget: int = Field(16, ge=1, le=1000)
    """How many replies an episode has for a theorem without a known script."""
    naive_skill: Share = 0.5
    """Probability with which each tactic of the naive policy is the oracle's; else it is any that applies."""
    shown: Shown = "own"
    """What the policy sees of a state: "own", or a control: "hidden", nothing, or "shuffled", hypotheses under names
    that are not theirs."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _check_kinds(cls, kinds: object) -> dict[str, float]:
        return check_weights("kinds", kinds, KIND_NAMES)

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        unread = ("train_path", "heldout_path", "max_bad_rows") if self.mode == "generated" else ("kinds",)
        check_unread(self, unread, self.mode)
        return self


def find_budget(theorem: Theorem, chosen: ProofsArguments) -> int:
    """Return how many calls an episode has."""
    return len(theorem.script) + chosen.slack if theorem.script else chosen.budget
