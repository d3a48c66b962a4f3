"""Theorems for Coq, made together with their scripts: those of the family `proofs` that need no axiom, and equations
over numbers and lists that need computation and induction. Names are drawn."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from turnwise_worlds.coq.theorem import CoqTheorem
from turnwise_worlds.proofs.kinds import make_theorem
from turnwise_worlds.proofs.words import ELEMENTS, NAMES, Tactic
from turnwise_worlds.proving.logic import LOGIC_KINDS, write_statement
from turnwise_worlds.proving.prover import Theorem

NAME = "t"
"""Name of every made theorem."""


def make_logic(kind: str, random: Random) -> CoqTheorem:
    """Make a theorem of a kind of the family `proofs`."""
    made = make_theorem(kind, random)
    return _build(write_statement(made), made.names, made.script)


def make_computation(old: str, new: str, sort: str, random: Random) -> CoqTheorem:
    """Make a theorem that follows from a hypothesis once something is computed. `old` and `new` are the sides of the
    hypothesis and the goal, in which X, Y, Z are variables and W is a number."""
    variables, names = _draw(random)
    statement = f"(X Y Z : {sort}) {'' if sort == 'nat' else '(W : nat) '}({names[0]} : {old}) : {new}"
    script = (Tactic("simpl"), Tactic("rewrite", names[0]), Tactic("reflexivity"))
    return _build(_fill(statement, variables), names, script)


def make_induction(equation: str, binders: str, random: Random) -> CoqTheorem:
    """Make an equation that is proved by induction on X."""
    variables, names = _draw(random)
    depth = random.choice((0, 0, 1, 2)) if "list" not in binders else 0
    left, right = equation.split(" = ")
    for _ in range(depth):
        left, right = f"S ({left})", f"S ({right})"
    script = (
        Tactic("induction", variables["x"]),
        Tactic("reflexivity"),
        Tactic("simpl"),
        Tactic("rewrite", names[0]),
        Tactic("reflexivity"),
    )
    return _build(_fill(f"{binders} : {left} = {right}", variables), names, script)


def _build(statement: str, names: tuple[str, ...], script: tuple[Tactic, ...]) -> CoqTheorem:
    return CoqTheorem(theorem=Theorem(name=NAME, statement=statement), names=names, script=script)


def _draw(random: Random) -> tuple[dict[str, str], tuple[str, ...]]:
    variables = dict(zip("xyzw", random.sample(ELEMENTS, 4), strict=True))
    return variables, tuple(random.sample(NAMES, len(NAMES)))


def _fill(statement: str, variables: Mapping[str, str]) -> str:
    """Put the drawn names of variables in place of X, Y, Z and W."""
    return re.sub("[XYZW]", lambda match: variables[match[0].lower()], statement)


_ONE, _TWO, _THREE = "(X : nat)", "(X Y : nat)", "(X Y Z : nat)"
_LISTS = {1: "(X : list nat)", 2: "(X Y : list nat)", 3: "(X Y Z : list nat)"}
KINDS: Mapping[str, Callable[[Random], CoqTheorem]] = {
    **{kind: partial(make_logic, kind) for kind in LOGIC_KINDS},
    "plus_simpl": partial(make_computation, "X + Y = Z", "S X + Y = S Z", "nat"),
    "plus_zero": partial(make_induction, "X + 0 = X", _ONE),
    "plus_next": partial(make_induction, "X + S Y = S (X + Y)", _TWO),
    "plus_assoc": partial(make_induction, "X + (Y + Z) = X + Y + Z", _THREE),
    "times_zero": partial(make_induction, "X * 0 = 0", _ONE),
    "append_simpl": partial(make_computation, "X ++ Y = Z", "(W :: X) ++ Y = W :: Z", "list nat"),
    "append_nil": partial(make_induction, "X ++ nil = X", _LISTS[1]),
    "append_assoc": partial(make_induction, "X ++ (Y ++ Z) = (X ++ Y) ++ Z", _LISTS[3]),
    "append_length": partial(make_induction, "length (X ++ Y) = length X + length Y", _LISTS[2]),
}
"""Kinds of theorems: propositional ones, equations, numbers, lists."""
