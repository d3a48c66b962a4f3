"""What the policy sees of a state, under the controls of `ProofsArguments.shown`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from turnwise.core.seeds import rng
from turnwise_worlds.proofs.arguments import ProofsArguments
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.syntax import format_formula
from turnwise_worlds.proofs.theorem import Theorem
from turnwise_worlds.proofs.words import Tactic, find_name, format_state, refer

HIDDEN = " ?"
"""What is shown in place of a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How states of one theorem are shown."""

    chosen: ProofsArguments
    shown_names: Mapping[str, str] = field(default_factory=dict)
    """The name under which a hypothesis is shown; those that are not here keep theirs."""

    @staticmethod
    def of(theorem: Theorem, chosen: ProofsArguments) -> View:
        """Return the view of a theorem: with `shown="shuffled"`, no name stays in its place."""
        if chosen.shown != "shuffled":
            return View(chosen=chosen)
        names = sorted({*theorem.names, *(name for name, _ in theorem.sequent.hypotheses)})
        rng(chosen.seed, "shuffled names", str(theorem.sequent)).shuffle(names)
        return View(chosen=chosen, shown_names=dict(zip(names, [*names[1:], names[0]], strict=True)))

    def show(self, state: ProofState) -> str:
        """Write the first open goal; where none is left, the text says so."""
        if not state.goals:
            return " proved"
        if self.chosen.shown == "hidden":
            return HIDDEN
        goal = state.goals[0]
        hypotheses = [(self.rename(name), formula) for name, formula in goal.hypotheses]
        return format_state(hypotheses, goal.sequent.conclusion, len(state.goals), self.chosen.style)

    def rename(self, name: str) -> str:
        """Return the name under which a hypothesis is shown."""
        return self.shown_names.get(name, name)

    def call(self, state: ProofState, name: str) -> str:
        """Return what a hypothesis of the first open goal is called; "" for none."""
        said = next((format_formula(formula, "terse") for own, formula in state.goals[0].hypotheses if own == name), "")
        return refer(self.rename(name), said) if said and self.chosen.style == "terse" else self.rename(name)

    def read(self, state: ProofState, tactic: Tactic) -> Tactic:
        """Return a tactic with the name of the hypothesis that it calls. Where names are shuffled, what is shown calls
        another hypothesis or none."""
        if self.chosen.style == "full" or not state.goals:
            return tactic
        said = [(name, format_formula(formula, "terse")) for name, formula in state.goals[0].hypotheses]
        return replace(tactic, name=find_name(tactic.name, said))
