"""What sequents say in all small worlds: truth tables for propositions, tables of operations for equations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
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
    Variable,
    walk_terms,
)
from turnwise_worlds.proofs.kernel.rules import Refused, Rule
from turnwise_worlds.proofs.kernel.sequent import Sequent

ATOMS = ("p", "q", "r")
ELEMENTS = ("a", "b", "e")
SIZE = 2
"""Elements of a world of terms."""


def is_true(formula: Formula, world: Mapping[str, bool]) -> bool:
    """Evaluate a formula."""
    match formula:
        case Atom(name):
            return world[name]
        case Falsehood():
            return False
        case Implies(left, right):
            return not is_true(left, world) or is_true(right, world)
        case And(left, right):
            return is_true(left, world) and is_true(right, world)
        case Or(left, right):
            return is_true(left, world) or is_true(right, world)
    raise AssertionError(formula)


def holds(sequent: Sequent, world: Mapping[str, bool]) -> bool:
    """Whether the conclusion is true, or a hypothesis is not."""
    return is_true(sequent.conclusion, world) or not all(is_true(each, world) for _, each in sequent.hypotheses)


def list_worlds() -> Iterator[dict[str, bool]]:
    """Yield every valuation of the atoms."""
    for values in product((False, True), repeat=len(ATOMS)):
        yield dict(zip(ATOMS, values, strict=True))


def find_broken(rule: Rule, sequent: Sequent, names: tuple[str, ...], formulas: tuple[Formula, ...]) -> bool | None:
    """Whether some valuation makes all premises of a rule true and the conclusion false; None if it does not apply."""
    try:
        premises = rule.apply(sequent, names, formulas)
    except Refused:
        return None
    return any(
        all(holds(premise, world) for premise in premises) and not holds(sequent, world) for world in list_worlds()
    )


class Table:
    """A world of terms: what `*` and `inv` give, and what elements stand for."""

    def __init__(self, random: Random) -> None:
        cells = range(SIZE)
        self.product = {pair: random.choice(cells) for pair in product(cells, repeat=2)}
        self.inverse = [random.choice(cells) for _ in cells]
        self.elements = {name: random.choice(cells) for name in ELEMENTS}

    def compute(self, term: Term, values: Mapping[str, int]) -> int:
        match term:
            case Constant(name):
                return self.elements[name]
            case Variable(name):
                return values[name]
            case Applied("inv", (only,)):
                return self.inverse[self.compute(only, values)]
            case Applied("*", (left, right)):
                return self.product[self.compute(left, values), self.compute(right, values)]
        raise AssertionError(term)

    def is_true(self, equation: Formula) -> bool:
        """Whether both sides are the same whatever variables stand for."""
        assert isinstance(equation, Equal)
        sides = (equation.left, equation.right)
        parts = [part for side in sides for part in walk_terms(side)]
        names = sorted({part.name for part in parts if isinstance(part, Variable)})
        return all(
            self.compute(equation.left, dict(zip(names, values, strict=True)))
            == self.compute(equation.right, dict(zip(names, values, strict=True)))
            for values in product(range(SIZE), repeat=len(names))
        )

    def holds(self, sequent: Sequent) -> bool:
        """Whether the conclusion is true, or a hypothesis is not."""
        return self.is_true(sequent.conclusion) or not all(self.is_true(each) for _, each in sequent.hypotheses)


def draw_formula(random: Random, depth: int) -> Formula:
    """Draw a formula over `ATOMS`."""
    if depth == 0 or random.random() < 0.3:
        return Falsehood() if random.random() < 0.15 else Atom(random.choice(ATOMS))
    kind = random.choice((Implies, And, Or))
    return kind(draw_formula(random, depth - 1), draw_formula(random, depth - 1))


def draw_term(random: Random, depth: int, variables: Sequence[str] = ()) -> Term:
    """Draw a term over `ELEMENTS`."""
    if depth == 0 or random.random() < 0.3:
        name = random.choice((*ELEMENTS, *variables))
        return Variable(name) if name in variables else Constant(name)
    if random.random() < 0.3:
        return Applied("inv", (draw_term(random, depth - 1, variables),))
    return Applied("*", (draw_term(random, depth - 1, variables), draw_term(random, depth - 1, variables)))
