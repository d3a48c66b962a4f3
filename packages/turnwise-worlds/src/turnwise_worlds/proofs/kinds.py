"""Theorems made together with their proofs: hypotheses are put down so that the goal follows, and the script comes
along. Nothing is searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from random import Random

from turnwise_worlds.proofs.kernel.formula import (
    And,
    Applied,
    Atom,
    Constant,
    Equal,
    Falsehood,
    Formula,
    Implies,
    Or,
    Term,
)
from turnwise_worlds.proofs.kernel.rules import Refused
from turnwise_worlds.proofs.kernel.sequent import Sequent
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.syntax import parse_formula
from turnwise_worlds.proofs.theorem import Theorem
from turnwise_worlds.proofs.words import ATOMS, ELEMENTS, NAMES, Tactic

Draft = tuple[list[Formula], Formula, list[tuple[str, Formula | None]]]
"""Hypotheses, a goal, and a script in which a hypothesis stands for its name."""


def make_theorem(kind: str, random: Random) -> Theorem:
    """Make a theorem of a kind of `KINDS`; names, their order, and that of the hypotheses are drawn."""
    if kind in THEORIES:
        return _make_computation(kind, random)
    hypotheses, goal, script = KINDS[kind](random)
    random.shuffle(hypotheses)
    names = random.sample(NAMES, len(NAMES))
    sequent = Sequent(tuple(zip(names, hypotheses, strict=False)), goal)
    theorem = Theorem(sequent=sequent, classical=kind in CLASSICAL_KINDS, names=tuple(names))
    return _write_script(theorem, script)


def _write_script(theorem: Theorem, script: list[tuple[str, Formula | None]]) -> Theorem:
    """Give the script the names that hypotheses have when it gets to them."""
    state = ProofState.open(theorem)
    named = []
    for word, formula in script:
        shown = state.goals[0].hypotheses
        name = "" if formula is None else next(name for name, each in shown if each == formula)
        named.append(Tactic(word, name))
        state = state.apply(named[-1])
    return Theorem(sequent=theorem.sequent, classical=theorem.classical, names=theorem.names, script=tuple(named))


def _atoms(random: Random, count: int) -> list[Formula]:
    return [Atom(name) for name in random.sample(ATOMS, count)]


def _chain(length: int) -> Callable[[Random], Draft]:
    def make(random: Random) -> Draft:
        atoms = _atoms(random, length + 1)
        links: list[Formula] = [Implies(one, other) for one, other in pairwise(atoms)]
        used: list[Formula] = [*reversed(links), atoms[0]]
        return [*used], atoms[-1], [("apply", each) for each in used]

    return make


def _distractor(random: Random) -> Draft:
    """Implications that lead elsewhere."""
    hypotheses, goal, script = _chain(2)(random)
    known = {Atom(each) for each in ATOMS} - {part for each in hypotheses for part in _list_atoms(each)}
    other, another = random.sample(sorted(known, key=lambda atom: atom.name), 2)
    return [*hypotheses, Implies(hypotheses[-1], other), Implies(goal, another)], goal, script


def _dead_end(random: Random) -> Draft:
    """A second implication ends in the goal, but nothing proves what it needs."""
    last, middle, start, other = _atoms(random, 4)
    used: list[Formula] = [Implies(middle, last), Implies(start, middle), start]
    dead: list[Formula] = [Implies(other, last)]
    return [*used, *dead], last, [("apply", each) for each in used]


def _dead_ends(random: Random) -> Draft:
    """As `dead_end`, at both implications."""
    last, middle, start, other, another = _atoms(random, 5)
    used: list[Formula] = [Implies(middle, last), Implies(start, middle), start]
    dead: list[Formula] = [Implies(other, last), Implies(another, middle)]
    return [*used, *dead], last, [("apply", each) for each in used]


def _split(random: Random) -> Draft:
    left, right, start = _atoms(random, 3)
    used: list[Formula] = [Implies(start, left), start, right]
    goal = And(left, right)
    if random.random() < 0.5:
        goal, used = And(right, left), [right, *used[:2]]
    return [*used], goal, [("split", None), *(("apply", each) for each in used)]


def _cases(random: Random) -> Draft:
    left, right, goal = _atoms(random, 3)
    first, second = Implies(left, goal), Implies(right, goal)
    either = Or(left, right)
    used: list[Formula] = [first, left, second, right]
    return [either, first, second], goal, [("destruct", either), *(("apply", each) for each in used)]


def _either(sides: int) -> Callable[[Random], Draft]:
    """Only one of the sides of a disjunction can be proved."""

    def make(random: Random) -> Draft:
        start, *atoms = _atoms(random, sides + 1)
        at = random.randrange(sides)
        goal = atoms[-1]
        for atom in reversed(atoms[:-1]):
            goal = Or(atom, goal)
        used: list[Formula] = [Implies(start, atoms[at]), start]
        choices = ["right"] * at + ["left"] * (at < sides - 1)
        return [*used], goal, [*((choice, None) for choice in choices), *(("apply", each) for each in used)]

    return make


def _curry(random: Random) -> Draft:
    left, right, goal = _atoms(random, 3)
    given = Implies(And(left, right), goal)
    intros: list[tuple[str, Formula | None]] = [("intro", None)] * 2
    return (
        [given],
        Implies(left, Implies(right, goal)),
        [*intros, ("apply", given), ("split", None), ("apply", left), ("apply", right)],
    )


def _uncurry(random: Random) -> Draft:
    left, right, goal = _atoms(random, 3)
    given, both = Implies(left, Implies(right, goal)), And(left, right)
    return [given, both], goal, [("destruct", both), ("apply", given), ("apply", left), ("apply", right)]


def _absurd(random: Random) -> Draft:
    fact, goal = _atoms(random, 2)
    denied = Implies(fact, Falsehood())
    return [fact, denied], goal, [("exfalso", None), ("apply", denied), ("apply", fact)]


def _contra(random: Random) -> Draft:
    """What follows from the negation of the goal is false. Not provable in intuitionistic logic."""
    goal, other = _atoms(random, 2)
    negation, denied = Implies(goal, Falsehood()), Implies(other, Falsehood())
    given = Implies(negation, other)
    return [given, denied], goal, [("contradict", None), ("apply", denied), ("apply", given), ("apply", negation)]


def _equations(random: Random) -> Draft:
    """A chain of equations, each written one way or the other."""
    elements = [Constant(name) for name in random.sample(ELEMENTS, 4)]
    length = random.choice((2, 3))
    hypotheses: list[Formula] = []
    script: list[tuple[str, Formula | None]] = []
    for one, other in pairwise(elements[: length + 1]):
        is_back = random.random() < 0.5
        given = Equal(other, one) if is_back else Equal(one, other)
        hypotheses.append(given)
        script.append(("rewrite_back" if is_back else "rewrite", given))
    return [*hypotheses], Equal(elements[0], elements[length]), [*script, ("reflexivity", None)]


def _list_atoms(formula: Formula) -> list[Formula]:
    return [*_list_atoms(formula.left), *_list_atoms(formula.right)] if isinstance(formula, Implies) else [formula]


KINDS: Mapping[str, Callable[[Random], Draft]] = {
    **{f"chain{length}": _chain(length) for length in (2, 3, 4, 5)},
    "split": _split,
    "cases": _cases,
    "either": _either(2),
    "either3": _either(3),
    "curry": _curry,
    "uncurry": _uncurry,
    "absurd": _absurd,
    "distractor": _distractor,
    "dead_end": _dead_end,
    "dead_ends": _dead_ends,
    "contra": _contra,
    "equations": _equations,
}
"""Kinds whose script is put down with the hypotheses."""
CLASSICAL_KINDS = ("contra",)
"""Kinds that need proof by contradiction."""
THEORIES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "group": (
        ("unit", "e * ?x = ?x"),
        ("inverse", "( inv ?x ) * ?x = e"),
        ("assoc", "( ?x * ?y ) * ?z = ?x * ( ?y * ?z )"),
    ),
    "lists": (
        ("append_nil", "nil ++ ?x = ?x"),
        ("append_cons", "( ?x :: ?y ) ++ ?z = ?x :: ( ?y ++ ?z )"),
        ("rev_nil", "rev nil = nil"),
        ("rev_cons", "rev ( ?x :: ?y ) = ( rev ?y ) ++ ( ?x :: nil )"),
    ),
}
"""Kinds whose goals are computed by laws, read from left to right: the laws, in the terse style."""
KIND_NAMES = (*KINDS, *THEORIES)


def _make_computation(kind: str, random: Random) -> Theorem:
    """A term, and the simplest form to which the laws bring it."""
    laws = tuple((name, parse_formula(text)) for name, text in THEORIES[kind])
    term = _draw_product(random) if kind == "group" else _draw_list(random)
    state = ProofState.open(Theorem(sequent=Sequent(laws, Equal(term, Constant("unknown")))))
    script = []
    while (step := _compute(state)) is not None:
        state = step[1]
        script.append(step[0])
    simplest = state.goals[0].sequent.conclusion
    assert isinstance(simplest, Equal)
    sequent = Sequent(laws, Equal(term, simplest.left))
    return Theorem(sequent=sequent, script=(*script, Tactic("reflexivity")))


def _compute(state: ProofState) -> tuple[Tactic, ProofState] | None:
    """Apply the first law that applies."""
    for name, _ in state.theorem.sequent.hypotheses:
        tactic = Tactic("rewrite", name)
        try:
            return tactic, state.apply(tactic)
        except Refused:
            continue
    return None


def _draw_product(random: Random) -> Term:
    term: Term
    term, other = (Constant(name) for name in random.sample(ELEMENTS, 2))
    for _ in range(random.choice((1, 2))):
        match random.randrange(3):
            case 0:
                term = Applied("*", (Constant("e"), term))
            case 1:
                term = Applied("*", (Applied("*", (Applied("inv", (other,)), other)), term))
            case 2:
                term = Applied("*", (Applied("*", (Constant("e"), other)), term))
    return term


def _draw_list(random: Random) -> Term:
    elements = [Constant(name) for name in random.sample(ELEMENTS, 3)]
    term: Term = Constant("nil")
    length = random.choice((1, 2))
    for element in elements[:length]:
        term = Applied("::", (element, term))
    if random.random() < 0.5:
        return Applied("rev", (term,))
    return Applied("++", (term, Applied("::", (elements[2], Constant("nil")))))
