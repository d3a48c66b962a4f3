"""A proof in the making: the open goals, and what the tactics so far have put together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnwise_worlds.proofs.kernel.rules import Proof, Refused
from turnwise_worlds.proofs.tactics import Goal, apply_tactic, count_holes, fill
from turnwise_worlds.proofs.theorem import Theorem
from turnwise_worlds.proofs.words import Tactic


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofState:
    """Immutable: a fork is the object itself."""

    theorem: Theorem
    goals: tuple[Goal, ...]
    """Open goals; tactics work on the first."""
    steps: tuple[Proof, ...] = ()
    """One proof with holes for each tactic that applied, in order."""

    @staticmethod
    def open(theorem: Theorem) -> ProofState:
        """Return the state before the first tactic."""
        return ProofState(theorem=theorem, goals=(Goal(theorem.sequent),))

    def apply(self, tactic: Tactic) -> ProofState:
        """Return the state after a tactic. Raises Refused if it does not apply, or nothing is left to prove."""
        if not self.goals:
            raise Refused("nothing is left to prove")
        theorem = self.theorem
        step, goals = apply_tactic(self.goals[0], tactic, theorem.names, classical=theorem.classical)
        return replace(self, goals=(*goals, *self.goals[1:]), steps=(*self.steps, step))

    def build_proof(self) -> Proof | None:
        """Put the whole proof together; None while goals are open."""
        if self.goals:
            return None
        done: list[Proof] = []  # finished proofs, the leftmost last
        for step in reversed(self.steps):
            count = count_holes(step)
            proofs, done = done[len(done) - count :], done[: len(done) - count]
            done.append(fill(step, reversed(proofs)))
        [proof] = done
        return proof
