"""Sequents: what is assumed, under which names, and what is to be proved."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise_worlds.proofs.kernel.formula import Formula


@dataclass(frozen=True, slots=True)
class Sequent:
    """Hypotheses, each with a name of its own, and a conclusion. An `Equal` with variables is a law."""

    hypotheses: tuple[tuple[str, Formula], ...]
    conclusion: Formula

    def find(self, name: str) -> Formula | None:
        """Return the hypothesis with this name; None if there is none."""
        return next((formula for each, formula in self.hypotheses if each == name), None)

    def prove(self, conclusion: Formula) -> Sequent:
        """Return the sequent with the same hypotheses and another conclusion."""
        return Sequent(self.hypotheses, conclusion)

    def assume(self, name: str, formula: Formula) -> Sequent:
        """Return the sequent with one more hypothesis, the last."""
        return Sequent((*self.hypotheses, (name, formula)), self.conclusion)
