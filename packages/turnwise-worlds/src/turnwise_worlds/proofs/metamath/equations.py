"""Proofs about equations as Metamath proofs from equational logic.

Elements of a theorem become constants, its laws and hypotheses axioms, and its conclusion the theorem.
"""

from __future__ import annotations

from turnwise_worlds.proofs.kernel.formula import Applied, Constant, Equal, Formula, Term, Variable, match, walk_terms
from turnwise_worlds.proofs.kernel.rules import RULES, Proof, Refused
from turnwise_worlds.proofs.kernel.sequent import Sequent
from turnwise_worlds.proofs.metamath.logic import Labels
from turnwise_worlds.proofs.syntax import CONSTANTS

_OPERATIONS = {"*": "mul", "++": "app", "::": "cons", "inv": "inv", "rev": "rev"}


def export_equations(sequent: Sequent, proof: Proof, label: str) -> str:
    """Return the theory of a sequent and the theorem `label`, to be read after `equations.mm`.

    The statement is made of `sequent` alone. The theory is outside any scope, so that one text holds one theorem.
    Raises Refused where the kernel's rules do not apply.
    """
    sides = [_read(sequent.conclusion), *(_read(formula) for _, formula in sequent.hypotheses)]
    parts = [part for equation in sides for side in (equation.left, equation.right) for part in walk_terms(side)]
    parts += [part for side in _list_proof_terms(proof) for part in walk_terms(side)]
    elements = sorted({part.name for part in parts if isinstance(part, Constant) and part.name not in CONSTANTS})
    variables = sorted({part.name for part in parts if isinstance(part, Variable)})
    lines = [f"  $c el.{name} $.\n  term.{name} $a term el.{name} $." for name in elements]
    lines += [f"  $v any.{name} $.\n  var.{name} $f term any.{name} $." for name in variables]
    lines += [f"  law.{name} $a {state_equation(formula)} $." for name, formula in sequent.hypotheses]
    lines.append(f"  {label} $p {state_equation(sequent.conclusion)} $=")
    lines.append(f"    {' '.join(_export(sequent, proof))} $.")
    return "\n".join([*lines, ""])


def state_equation(formula: Formula) -> str:
    """Write an equation as a statement. Raises Refused if it is none."""
    equation = _read(formula)
    return f"|- {_write(equation.left)} = {_write(equation.right)}"


def _read(formula: Formula) -> Equal:
    if not isinstance(formula, Equal):
        raise Refused("a formula of propositional logic is no equation")
    return formula


def _list_proof_terms(proof: Proof) -> list[Term]:
    own = [side for formula in map(_read, proof.formulas) for side in (formula.left, formula.right)]
    return own + [term for premise in proof.premises for term in _list_proof_terms(premise)]


def _write(term: Term) -> str:
    match term:
        case Constant(name):
            return name if name in CONSTANTS else f"el.{name}"
        case Variable(name):
            return f"any.{name}"
        case Applied(operation, (only,)):
            return f"( {operation} {_write(only)} )"
        case Applied(operation, (left, right)):
            return f"( {_write(left)} {operation} {_write(right)} )"
    raise Refused("an operation with more than two arguments")


def _build(term: Term) -> Labels:
    """Return the labels that build a term."""
    match term:
        case Constant(name):
            return [f"t{name}" if name in CONSTANTS else f"term.{name}"]
        case Variable(name):
            return [f"var.{name}"]
        case Applied(operation, arguments):
            return [label for each in arguments for label in _build(each)] + [f"t{_OPERATIONS[operation]}"]


def _export(sequent: Sequent, proof: Proof) -> Labels:
    """Return the proof of the conclusion."""
    premises = RULES[proof.rule].apply(sequent, proof.names, proof.formulas)
    proofs = [_export(*each) for each in zip(premises, proof.premises, strict=True)]
    goal = _read(sequent.conclusion)
    left, right = _build(goal.left), _build(goal.right)
    match proof.rule:
        case "hypothesis":
            return _export_law(sequent, proof.names[0])
        case "reflexivity":
            return [*left, "eqid"]
        case "symmetry":
            return [*right, *left, *proofs[0], "eqcom"]
        case "replacement":
            equation, after = map(_read, proof.formulas)
            new_left, new_right = _build(after.left), _build(after.right)
            first = _export_change(goal.left, after.left, equation, proofs[0])
            second = [*right, *new_right, *_export_change(goal.right, after.right, equation, proofs[0]), "eqcom"]
            halfway = [*left, *new_left, *new_right, *first, *proofs[1], "eqtr"]
            return [*left, *new_right, *right, *halfway, *second, "eqtr"]
    raise Refused(f"{proof.rule} is no rule of equational logic")


def _export_law(sequent: Sequent, name: str) -> Labels:
    """Return the instance of a law: the terms of its variables in the order of their declaration, and its label."""
    law, goal = sequent.find(name), _read(sequent.conclusion)
    if law is None:
        raise Refused(f"there is no hypothesis {name}")
    equation = _read(law)
    values = match(equation.left, goal.left, {})
    values = None if values is None else match(equation.right, goal.right, values)
    if values is None:
        raise Refused(f"the goal is no instance of {name}")
    return [*(label for variable in sorted(values) for label in _build(values[variable])), f"law.{name}"]


def _export_change(before: Term, after: Term, equation: Equal, proof: Labels) -> Labels:
    """Return the proof of `before = after`, where some occurrences of the equation's left side became its right."""
    if before == after:
        return [*_build(before), "eqid"]
    if (before, after) == (equation.left, equation.right):
        return proof
    assert isinstance(before, Applied)
    assert isinstance(after, Applied)
    pairs = list(zip(before.arguments, after.arguments, strict=True))
    terms = [label for one, other in pairs for label in (*_build(one), *_build(other))]
    changes = [label for one, other in pairs for label in _export_change(one, other, equation, proof)]
    return [*terms, *changes, f"eq{_OPERATIONS[before.operation]}"]
