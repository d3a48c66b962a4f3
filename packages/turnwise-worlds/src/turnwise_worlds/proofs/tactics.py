"""What a tactic does to a goal: it leaves other goals, and a proof with a hole for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from turnwise_worlds.proofs.kernel.formula import (
    And,
    Equal,
    Falsehood,
    Formula,
    Implies,
    Or,
    Term,
    Variable,
    match,
    replace_all,
    substitute,
    walk_terms,
)
from turnwise_worlds.proofs.kernel.rules import RULES, Proof, Refused
from turnwise_worlds.proofs.kernel.sequent import Sequent
from turnwise_worlds.proofs.words import Tactic, pick_names

HOLE = Proof(rule="hole")
"""Stands for a proof that is still missing; the kernel knows no such rule."""
MAX_TERMS = 80
"""Terms in a goal, at most: rewriting could double them every time."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A sequent that is left to prove."""

    sequent: Sequent
    hidden: frozenset[str] = frozenset()
    """Hypotheses that were taken apart: not shown, and no tactic can name them."""

    @property
    def hypotheses(self) -> tuple[tuple[str, Formula], ...]:
        """What tactics can use."""
        return tuple(each for each in self.sequent.hypotheses if each[0] not in self.hidden)

    def find(self, name: str) -> Formula:
        """Return a hypothesis that tactics can use. Raises Refused if there is none of this name."""
        found = None if name in self.hidden else self.sequent.find(name)
        if found is None:
            raise Refused(f"there is no {name[:20]}")
        return found


Step = tuple[Proof, Sequence[Goal]]
"""A proof with holes, and the goals of the holes from left to right."""


def apply_tactic(goal: Goal, tactic: Tactic, pool: Sequence[str], *, classical: bool) -> Step:
    """Apply a tactic to a goal. `pool` is where names of new hypotheses come from.

    Raises Refused if it does not apply or is unknown.
    """
    rule = _BY_RULE.get(tactic.word)
    if rule is not None:
        if RULES[rule].is_classical and not classical:
            raise Refused(f"{tactic.word} is not allowed in intuitionistic logic")
        if rule == "false_out" and goal.sequent.conclusion == Falsehood():
            raise Refused("the goal is false already")
        names = pick_names(pool, [name for name, _ in goal.sequent.hypotheses], RULES[rule].num_names)
        premises = RULES[rule].apply(goal.sequent, names, ())
        step = Proof(rule=rule, names=names, premises=(HOLE,) * len(premises))
        return step, [Goal(premise, goal.hidden) for premise in premises]
    by_name = _BY_NAME.get(tactic.word)
    if by_name is None:
        raise Refused(f"there is no tactic {tactic.word[:20]}")
    return by_name(goal, tactic.name, pool)


def fill(partial: Proof, proofs: Iterator[Proof]) -> Proof:
    """Return a proof with its holes filled from left to right."""
    if partial == HOLE:
        return next(proofs)
    premises = tuple(fill(premise, proofs) for premise in partial.premises)
    return Proof(rule=partial.rule, premises=premises, names=partial.names, formulas=partial.formulas)


def count_holes(partial: Proof) -> int:
    """Count the holes of a proof."""
    return 1 if partial == HOLE else sum(map(count_holes, partial.premises))


def _use(name: str) -> Proof:
    return Proof(rule="hypothesis", names=(name,))


def _apply(goal: Goal, name: str, pool: Sequence[str]) -> Step:
    """Use a hypothesis whose end is the goal; what it needs for that is left to prove."""
    formula, needed = goal.find(name), []
    if isinstance(formula, Equal):
        RULES["hypothesis"].apply(goal.sequent, (name,), ())
        return _use(name), []
    while formula != goal.sequent.conclusion:
        if not isinstance(formula, Implies):
            raise Refused(f"{name} does not end in the goal")
        needed.append(formula.left)
        formula = formula.right
    proof = _use(name)
    for each in needed:
        proof = Proof(rule="implies_out", premises=(proof, HOLE), formulas=(each,))
    return proof, [Goal(goal.sequent.prove(each), goal.hidden) for each in needed]


def _destruct(goal: Goal, name: str, pool: Sequence[str]) -> Step:
    """Take a hypothesis apart."""
    formula, sequent = goal.find(name), goal.sequent
    hidden = goal.hidden | {name}
    first, second = pick_names(pool, [each for each, _ in sequent.hypotheses], 2)
    match formula:
        case Falsehood():
            return Proof(rule="false_out", premises=(_use(name),)), []
        case Or(left, right):
            step = Proof(
                rule="or_out", premises=(_use(name), HOLE, HOLE), names=(first, second), formulas=(left, right)
            )
            return step, [Goal(sequent.assume(first, left), hidden), Goal(sequent.assume(second, right), hidden)]
        case And(left, right):
            inner = Proof(rule="implies_in", premises=(HOLE,), names=(second,))
            both = Proof(rule="implies_in", premises=(inner,), names=(first,))
            one = Proof(rule="and_out_left", premises=(_use(name),), formulas=(right,))
            other = Proof(rule="and_out_right", premises=(_use(name),), formulas=(left,))
            applied = Proof(rule="implies_out", premises=(both, one), formulas=(left,))
            step = Proof(rule="implies_out", premises=(applied, other), formulas=(right,))
            return step, [Goal(sequent.assume(first, left).assume(second, right), hidden)]
    raise Refused(f"{name} cannot be taken apart")


def _rewrite(goal: Goal, name: str, pool: Sequence[str]) -> Step:
    return _replace(goal, name, is_backwards=False)


def _rewrite_back(goal: Goal, name: str, pool: Sequence[str]) -> Step:
    return _replace(goal, name, is_backwards=True)


def _replace(goal: Goal, name: str, *, is_backwards: bool) -> Step:
    """Replace one side of an equation by the other, wherever the first instance of it that is found occurs."""
    equation, conclusion = goal.find(name), goal.sequent.conclusion
    if not (isinstance(equation, Equal) and isinstance(conclusion, Equal)):
        raise Refused(f"{name} is no equation")
    sides = (equation.right, equation.left) if is_backwards else (equation.left, equation.right)
    found = _find_instance(sides[0], conclusion)
    if found is None:
        raise Refused(f"the goal has nothing that {name} is about")
    old, new = found[0], substitute(sides[1], found[1])
    if any(isinstance(part, Variable) for part in walk_terms(new)):
        raise Refused(f"{name} does not say what to put in")
    after = Equal(replace_all(conclusion.left, old, new), replace_all(conclusion.right, old, new))
    if sum(1 for side in (after.left, after.right) for _ in walk_terms(side)) > MAX_TERMS:
        raise Refused("the goal gets too long")
    proof = _use(name)
    if is_backwards:
        proof = Proof(rule="symmetry", premises=(proof,))
    step = Proof(rule="replacement", premises=(proof, HOLE), formulas=(Equal(old, new), after))
    return step, [Goal(goal.sequent.prove(after), goal.hidden)]


def _find_instance(pattern: Term, conclusion: Equal) -> tuple[Term, dict[str, Term]] | None:
    for side in (conclusion.left, conclusion.right):
        for part in walk_terms(side):
            values = match(pattern, part, {})
            if values is not None:
                return part, values
    return None


_BY_RULE: Mapping[str, str] = {
    "intro": "implies_in",
    "split": "and_in",
    "left": "or_in_left",
    "right": "or_in_right",
    "exfalso": "false_out",
    "contradict": "contradiction",
    "reflexivity": "reflexivity",
}
"""Tactics that are one rule."""
_BY_NAME: Mapping[str, Callable[[Goal, str, Sequence[str]], Step]] = {
    "apply": _apply,
    "destruct": _destruct,
    "rewrite": _rewrite,
    "rewrite_back": _rewrite_back,
}
"""Tactics that use a hypothesis."""
