"""What the environment asks of a prover: goals, one tactic at a time, and a last word on the whole proof.

A state is a value: the tactics that led to it. A tactic is applied to any earlier state, so going back, forks and tree
search need nothing else, and a prover that died is replaced by one that runs the tactics again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from turnwise.core.errors import EnvironmentFault

Refusal = Literal["wrong", "vernacular", "time", "memory", "output"]
"""Why a tactic has no effect: the prover refuses it, it is no tactic that may be used, or it hit a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theorem:
    """A statement to prove."""

    name: str
    statement: str
    """Binders and type, as after the theorem's name: `(p q : Prop) (a : p -> q) : p -> q`."""
    imports: tuple[str, ...] = ()
    """Commands before the statement, `Require Import Lia.`; the user's own, never the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is left to show, in the prover's notation."""

    hypotheses: tuple[tuple[str, str], ...]
    """Name and type, variables included."""
    conclusion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofState:
    """Where a proof stands."""

    theorem: Theorem
    script: tuple[str, ...]
    """The accepted tactics, in order."""
    goals: tuple[Goal, ...]
    """The first is the one that the next tactic is for; of the others the hypotheses may be unknown. Empty when
    nothing is left."""
    handle: int | None = None
    """The prover's number of this state, for provers that keep states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a fresh process says of a whole proof."""

    accepted: bool
    reason: str = ""
    """Why not, in one line."""


class TacticRefused(Exception):
    """Raised for a tactic without effect; the state before it still holds."""

    def __init__(self, kind: Refusal, message: str) -> None:
        super().__init__(message)
        self.kind: Refusal = kind


class ProverLost(EnvironmentFault):
    """The prover died or did not answer, not by the fault of a tactic: the episode is Invalid and can be repeated."""


class Prover(Protocol):
    """A prover for any number of proofs, called from any thread. Every call has a deadline."""

    def start(self, theorem: Theorem) -> ProofState:
        """Return the state before the first tactic. Raises DataError for a statement that the prover refuses,
        ProverLost if there is no answer."""
        ...

    def apply(self, state: ProofState, tactic: str) -> ProofState:
        """Return the state after one tactic. Raises TacticRefused, ProverLost."""
        ...

    def verify(self, theorem: Theorem, script: tuple[str, ...]) -> Verdict:
        """Check a whole proof apart from the process in which it was found, axioms included. Raises ProverLost."""
        ...

    def close(self) -> None:
        """End every process. A second call does nothing."""
        ...
