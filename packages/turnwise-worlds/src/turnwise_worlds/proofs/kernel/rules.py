"""The rules of inference, read backwards: from a conclusion to the premises that are left to prove.

Propositional: natural deduction in the form of Gentzen's NJ; `contradiction` makes it classical. Equational: laws and
hypotheses, reflexivity, symmetry, and replacing equals by equals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turnwise_worlds.proofs.kernel.formula import (
    And,
    Applied,
    Atom,
    Equal,
    Falsehood,
    Formula,
    Implies,
    Or,
    Term,
    Variable,
    match,
    substitute,
    walk_terms,
)
from turnwise_worlds.proofs.kernel.sequent import Sequent


class Refused(Exception):
    """A rule does not apply; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One use of a rule, and the proofs of its premises."""

    rule: str
    """A name of `RULES`."""
    premises: tuple[Proof, ...] = ()
    names: tuple[str, ...] = ()
    """Hypotheses that the rule uses or makes."""
    formulas: tuple[Formula, ...] = ()
    """Formulas of the premises that the conclusion does not determine."""


Names = tuple[str, ...]
Formulas = tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule does, and how much a step has to give it."""

    apply: Callable[[Sequent, Names, Formulas], Sequence[Sequent]]
    """Returns the premises of a conclusion. Raises Refused."""
    num_names: int = 0
    num_formulas: int = 0
    is_classical: bool = False
    """Whether intuitionistic logic lacks it."""


def _need(condition: bool, why: str) -> None:
    if not condition:
        raise Refused(why)


def _assume(sequent: Sequent, name: str, formula: Formula) -> Sequent:
    _need(sequent.find(name) is None, f"the name {name} is taken")
    _need(not has_variables(formula), "a law cannot be assumed")
    return sequent.assume(name, formula)


def has_variables(formula: Formula) -> bool:
    """Whether a formula is a law, or has one inside."""
    if isinstance(formula, Equal):
        return any(isinstance(part, Variable) for side in (formula.left, formula.right) for part in walk_terms(side))
    if isinstance(formula, Atom | Falsehood):
        return False
    return has_variables(formula.left) or has_variables(formula.right)


def _hypothesis(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    """A hypothesis is the conclusion, or a law of which the conclusion is an instance."""
    (name,) = names
    found, goal = sequent.find(name), sequent.conclusion
    if found is None:
        raise Refused(f"there is no hypothesis {name}")
    if isinstance(found, Equal) and isinstance(goal, Equal):
        values = match(found.left, goal.left, {})
        values = None if values is None else match(found.right, goal.right, values)
        _need(
            values is not None
            and substitute(found.left, values) == goal.left
            and substitute(found.right, values) == goal.right,
            f"the goal is no instance of {name}",
        )
    else:
        _need(found == goal, f"{name} is not the goal")
    return ()


def _implies_in(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    (name,), goal = names, sequent.conclusion
    if not isinstance(goal, Implies):
        raise Refused("the goal is no implication")
    return (_assume(sequent, name, goal.left).prove(goal.right),)


def _implies_out(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    """Modus ponens; `formulas` has the antecedent."""
    (antecedent,) = formulas
    return sequent.prove(Implies(antecedent, sequent.conclusion)), sequent.prove(antecedent)


def _and_in(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    goal = sequent.conclusion
    if not isinstance(goal, And):
        raise Refused("the goal is no conjunction")
    return sequent.prove(goal.left), sequent.prove(goal.right)


def _and_out_left(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    """`formulas` has the right conjunct."""
    (other,) = formulas
    return (sequent.prove(And(sequent.conclusion, other)),)


def _and_out_right(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    """`formulas` has the left conjunct."""
    (other,) = formulas
    return (sequent.prove(And(other, sequent.conclusion)),)


def _or_in_left(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    goal = sequent.conclusion
    if not isinstance(goal, Or):
        raise Refused("the goal is no disjunction")
    return (sequent.prove(goal.left),)


def _or_in_right(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    goal = sequent.conclusion
    if not isinstance(goal, Or):
        raise Refused("the goal is no disjunction")
    return (sequent.prove(goal.right),)


def _or_out(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    """Cases; `formulas` has the disjuncts, `names` the two hypotheses."""
    left, right = formulas
    first, second = names
    return sequent.prove(Or(left, right)), _assume(sequent, first, left), _assume(sequent, second, right)


def _false_out(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    return (sequent.prove(Falsehood()),)


def _contradiction(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    """What cannot be false holds. Classical."""
    (name,) = names
    negation = Implies(sequent.conclusion, Falsehood())
    return (_assume(sequent, name, negation).prove(Falsehood()),)


def _reflexivity(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    goal = sequent.conclusion
    _need(isinstance(goal, Equal) and goal.left == goal.right, "the sides differ")
    return ()


def _symmetry(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    goal = sequent.conclusion
    if not isinstance(goal, Equal):
        raise Refused("the goal is no equation")
    return (sequent.prove(Equal(goal.right, goal.left)),)


def _replacement(sequent: Sequent, names: Names, formulas: Formulas) -> Sequence[Sequent]:
    """`formulas` has an equation and the goal after its left side was replaced by its right side, in any places."""
    equation, after = formulas
    goal = sequent.conclusion
    if not (isinstance(equation, Equal) and isinstance(goal, Equal) and isinstance(after, Equal)):
        raise Refused("no equation")
    replaced = all(_is_replaced(*sides, equation) for sides in ((goal.left, after.left), (goal.right, after.right)))
    _need(replaced, "the goal changed by more than the equation")
    return sequent.prove(equation), sequent.prove(after)


def _is_replaced(before: Term, after: Term, equation: Equal) -> bool:
    if before == after or (before, after) == (equation.left, equation.right):
        return True
    if not (isinstance(before, Applied) and isinstance(after, Applied)) or (
        before.operation,
        len(before.arguments),
    ) != (after.operation, len(after.arguments)):
        return False
    pairs = zip(before.arguments, after.arguments, strict=True)
    return all(_is_replaced(one, other, equation) for one, other in pairs)


RULES: Mapping[str, Rule] = {
    "hypothesis": Rule(_hypothesis, num_names=1),
    "implies_in": Rule(_implies_in, num_names=1),
    "implies_out": Rule(_implies_out, num_formulas=1),
    "and_in": Rule(_and_in),
    "and_out_left": Rule(_and_out_left, num_formulas=1),
    "and_out_right": Rule(_and_out_right, num_formulas=1),
    "or_in_left": Rule(_or_in_left),
    "or_in_right": Rule(_or_in_right),
    "or_out": Rule(_or_out, num_names=2, num_formulas=2),
    "false_out": Rule(_false_out),
    "contradiction": Rule(_contradiction, num_names=1, is_classical=True),
    "reflexivity": Rule(_reflexivity),
    "symmetry": Rule(_symmetry),
    "replacement": Rule(_replacement, num_formulas=2),
}
