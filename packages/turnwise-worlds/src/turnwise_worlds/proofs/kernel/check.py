"""The only function that accepts a proof."""

from __future__ import annotations

from turnwise_worlds.proofs.kernel.formula import Equal
from turnwise_worlds.proofs.kernel.rules import RULES, Proof, Refused, has_variables
from turnwise_worlds.proofs.kernel.sequent import Sequent


def check_proof(sequent: Sequent, proof: Proof, *, classical: bool) -> int:
    """Check that `proof` proves `sequent`, every step of it from the root, and return the number of steps.

    Raises Refused for a sequent that `check_sequent` refuses, an unknown rule, one that does not apply, a wrong number
    of premises, names or formulas, variables in a formula, and a rule of classical logic if `classical` is false.
    """
    check_sequent(sequent)
    count = 0
    left = [(sequent, proof)]
    while left:
        goal, step = left.pop()
        count += 1
        rule = RULES.get(step.rule)
        if rule is None or (rule.is_classical and not classical):
            raise Refused(f"there is no rule {step.rule}")
        if (len(step.names), len(step.formulas)) != (rule.num_names, rule.num_formulas):
            raise Refused(f"{step.rule} has {len(step.names)} names and {len(step.formulas)} formulas")
        if any(map(has_variables, step.formulas)):
            raise Refused(f"{step.rule} has a formula with variables")
        premises = rule.apply(goal, step.names, step.formulas)
        if len(premises) != len(step.premises):
            raise Refused(f"{step.rule} has {len(step.premises)} proofs of {len(premises)} premises")
        left += zip(premises, step.premises, strict=True)
    return count


def check_sequent(sequent: Sequent) -> None:
    """Raise Refused if two hypotheses have one name, or variables occur elsewhere than in hypotheses that are
    equations."""
    names = [name for name, _ in sequent.hypotheses]
    if len(set(names)) < len(names):
        raise Refused("two hypotheses have one name")
    others = [formula for _, formula in sequent.hypotheses if not isinstance(formula, Equal)]
    if any(map(has_variables, [sequent.conclusion, *others])):
        raise Refused("only a hypothesis that is an equation may have variables")
