"""The keyword arguments of the family `coq`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import Share, check_unread, check_weights
from turnwise_worlds.coq.kinds import KINDS
from turnwise_worlds.coq.sentences import HEADS, KNOWN
from turnwise_worlds.proving.arguments import ProvingArguments

Mode = Literal["generated", "files"]
Style = Literal["terse", "full"]


class CoqArguments(ProvingArguments):
    """Theorems that are proved in Coq, tactic by tactic."""

    mode: Mode = "generated"
    """Where theorems come from: made of `kinds`, or those of `train_path` and `heldout_path`."""
    kinds: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(KINDS, 1.0))
    """Share of each kind of theorem in mode="generated"."""
    style: Style = "full"
    """How states are shown and tactics are called: "full", as Coq does, or "terse", in one line and by short calls,
    for small models and generated theorems."""
    tactics: list[str] = Field(default_factory=lambda: list(HEADS))
    """The tactics that are allowed in the full style, by their first word."""
    slack: int = Field(2, ge=0, le=1000)
    """How many replies an episode has beyond the known script: an episode that needs more fails."""
    naive_skill: Share = 0.5
    """Probability with which each tactic of the naive policy is the script's; else it is one that fits the form of the
    goal, with any hypothesis."""
    num_processes: int = Field(2, ge=1, le=256)
    """How many coqtop run at a time; all episodes share them."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _check_kinds(cls, kinds: object) -> dict[str, float]:
        return check_weights("kinds", kinds, tuple(KINDS))

    @field_validator("tactics")
    @classmethod
    def _check_tactics(cls, tactics: list[str]) -> list[str]:
        for tactic in tactics:
            if tactic not in KNOWN:
                raise ConfigError(f"tactics: {tactic!r} is not among those that can be allowed: {', '.join(KNOWN)}")
        return tactics

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        unread = ("train_path", "heldout_path", "max_bad_rows") if self.mode == "generated" else ("kinds",)
        check_unread(self, unread, self.mode)
        if self.mode == "files" and self.style == "terse":
            raise ConfigError("style='terse' is for mode='generated'; use style='full' for theorems of files")
        return self
