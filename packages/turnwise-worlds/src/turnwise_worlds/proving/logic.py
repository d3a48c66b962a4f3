"""Theorems of the family `proofs` as statements that Coq and Lean read alike."""

from __future__ import annotations

from turnwise.core.seeds import derive_seed
from turnwise_worlds.proofs.kernel.formula import Atom, Constant, Equal, Falsehood, Formula, walk_terms
from turnwise_worlds.proofs.syntax import format_formula
from turnwise_worlds.proofs.theorem import Theorem

PROPOSITIONAL_KINDS = (
    *("chain2", "chain3", "split", "cases", "either", "curry", "uncurry", "absurd", "distractor", "dead_end"),
)
LOGIC_KINDS = (*PROPOSITIONAL_KINDS, "equations")
"""Kinds of the family `proofs` that need no axiom."""
HELD_OUT = 5
"""One statement in so many is held out."""


def write_statement(theorem: Theorem, numbers: str = "nat") -> str:
    """Write `(p q : Prop) (c : p -> q) (a : p) : q`; what equations are about has the type `numbers`."""
    formulas = [*(formula for _, formula in theorem.sequent.hypotheses), theorem.sequent.conclusion]
    names = sorted({name for formula in formulas for name in _list_names(formula)})
    binders = [f"({' '.join(names)} : {numbers if theorem.is_equational else 'Prop'})"]
    binders += [f"({name} : {format_formula(formula, 'full')})" for name, formula in theorem.sequent.hypotheses]
    return f"{' '.join(binders)} : {format_formula(theorem.sequent.conclusion, 'full')}"


def is_held_out(statement: str) -> bool:
    """Return whether a statement is held out: whatever makes it, it is in one split only."""
    return derive_seed("held out", statement) % HELD_OUT == 0


def _list_names(formula: Formula) -> list[str]:
    match formula:
        case Atom(name):
            return [name]
        case Falsehood():
            return []
        case Equal(left, right):
            return [part.name for side in (left, right) for part in walk_terms(side) if isinstance(part, Constant)]
    return [*_list_names(formula.left), *_list_names(formula.right)]
