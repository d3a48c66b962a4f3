"""The kernel: no rule proves what is false, no damaged proof is accepted, and by-hand proofs are."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from valuations import Table, draw_formula, draw_term, find_broken, holds, list_worlds

from turnwise_worlds.proofs.kernel.check import check_proof
from turnwise_worlds.proofs.kernel.formula import (
    Atom,
    Constant,
    Equal,
    Falsehood,
    Formula,
    Implies,
    Or,
    Variable,
    substitute,
)
from turnwise_worlds.proofs.kernel.rules import RULES, Proof, Refused, Rule
from turnwise_worlds.proofs.kernel.sequent import Sequent
from turnwise_worlds.proofs.kinds import KIND_NAMES, KINDS, make_theorem
from turnwise_worlds.proofs.state import ProofState
from turnwise_worlds.proofs.syntax import format_formula, parse_formula
from turnwise_worlds.proofs.theorem import Theorem

EQUATIONAL = ("hypothesis", "reflexivity", "symmetry", "replacement")
P, Q, R = map(Atom, "pqr")


def draw_case(random: Random) -> tuple[Sequent, tuple[str, ...], tuple[Formula, ...]]:
    """A sequent, two names and two formulas."""
    hypotheses = tuple((name, draw_formula(random, 2)) for name in "hk"[: random.randrange(3)])
    return Sequent(hypotheses, draw_formula(random, 2)), ("m", "n"), (draw_formula(random, 1), draw_formula(random, 1))


def prove(theorem: Theorem) -> Proof:
    """The proof of a theorem's own script."""
    state = ProofState.open(theorem)
    for tactic in theorem.script:
        state = state.apply(tactic)
    proof = state.build_proof()
    assert proof is not None
    return proof


@pytest.mark.parametrize("name", [name for name in RULES if name not in EQUATIONAL])
def test_no_rule_of_logic_proves_what_is_false(name: str) -> None:
    rule, random, applied = RULES[name], Random(name), 0
    for _ in range(1500):
        sequent, names, formulas = draw_case(random)
        broken = find_broken(rule, sequent, names[: rule.num_names], formulas[: rule.num_formulas])
        assert not broken
        applied += broken is not None
    assert applied > 150


WRONG = {
    "either side of a disjunction is enough": (
        0,
        2,
        lambda s, names, formulas: [s.prove(Or(*formulas)), s.assume("m", formulas[0])],
    ),
    "a conjunction needs one side": (0, 0, lambda s, n, f: RULES["and_in"].apply(s, (), ())[:1]),
    "an implication needs no premise": (0, 1, lambda s, n, f: [s.prove(Implies(f[0], s.conclusion))]),
    "the goal may be assumed": (0, 0, lambda s, n, f: [s.assume("m", s.conclusion)]),
    "an implication may be turned around": (
        0,
        0,
        lambda s, n, f: (
            [s.prove(Implies(s.conclusion.right, s.conclusion.left))] if isinstance(s.conclusion, Implies) else [s]
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_found(name: str) -> None:
    num_names, num_formulas, apply = WRONG[name]
    rule, random = Rule(apply, num_names=num_names, num_formulas=num_formulas), Random(name)
    cases = (draw_case(random) for _ in range(1500))
    assert any(find_broken(rule, sequent, names, formulas) for sequent, names, formulas in cases)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_rule_of_equations_proves_what_is_false(random: Random) -> None:
    law = Equal(draw_term(random, 2, ("x", "y")), draw_term(random, 2, ("x", "y")))
    fact = Equal(draw_term(random, 1), draw_term(random, 1))
    values = {"x": draw_term(random, 1), "y": draw_term(random, 1)}
    goal = Equal(draw_term(random, 2), draw_term(random, 2))
    if random.random() < 0.5:
        goal = Equal(substitute(law.left, values), substitute(law.right, values))
    sequent = Sequent((("law", law), ("fact", fact)), goal)
    tables = [Table(Random(f"{random.random()}")) for _ in range(12)]
    for name in EQUATIONAL:
        after = Equal(goal.left, draw_term(random, 2))
        formulas = (Equal(goal.right, after.right), after)
        for names in (("law",), ("fact",)):
            rule = RULES[name]
            try:
                premises = rule.apply(sequent, names[: rule.num_names], formulas[: rule.num_formulas])
            except Refused:
                continue
            for table in tables:
                assert table.holds(sequent) or not all(map(table.holds, premises))


def test_replacing_more_than_the_equation_is_refused() -> None:
    a, b, c = map(Constant, "abc")
    sequent = Sequent((("h", Equal(a, b)),), Equal(a, c))
    hole = Proof(rule="hypothesis", names=("h",))
    good = Proof(rule="replacement", premises=(hole, hole), formulas=(Equal(a, b), Equal(b, c)))
    bad = replace(good, formulas=(Equal(a, b), Equal(c, c)))
    premises = RULES["replacement"].apply(sequent, good.names, good.formulas)
    assert [each.conclusion for each in premises] == [Equal(a, b), Equal(b, c)]
    with pytest.raises(Refused, match="changed by more"):
        RULES["replacement"].apply(sequent, bad.names, bad.formulas)


def test_a_proof_by_hand() -> None:
    """p -> q, p |- q : modus ponens of two hypotheses, three steps."""
    sequent = Sequent((("c", Implies(P, Q)), ("a", P)), Q)
    uses = [Proof(rule="hypothesis", names=(name,)) for name in "ca"]
    proof = Proof(rule="implies_out", premises=(uses[0], uses[1]), formulas=(P,))
    assert check_proof(sequent, proof, classical=False) == 3
    with pytest.raises(Refused, match="c is not the goal"):
        check_proof(sequent, replace(proof, premises=(uses[1], uses[0])), classical=False)
    with pytest.raises(Refused, match="1 proofs of 2 premises"):
        check_proof(sequent, replace(proof, premises=(uses[0],)), classical=False)
    with pytest.raises(Refused, match="there is no rule hole"):
        check_proof(sequent, Proof(rule="hole"), classical=False)
    with pytest.raises(Refused, match="2 names and 0 formulas"):
        check_proof(sequent, Proof(rule="hypothesis", names=("c", "a")), classical=False)


def test_assuming_under_a_name_that_is_taken_is_refused() -> None:
    sequent = Sequent((("h", P),), Implies(Q, Q))
    proof = Proof(rule="implies_in", names=("h",), premises=(Proof(rule="hypothesis", names=("h",)),))
    with pytest.raises(Refused, match="the name h is taken"):
        check_proof(sequent, proof, classical=False)
    with pytest.raises(Refused, match="two hypotheses have one name"):
        check_proof(Sequent((("h", P), ("h", Q)), Q), proof, classical=False)


def test_variables_belong_to_laws_only() -> None:
    law = Equal(Variable("x"), Constant("a"))
    with pytest.raises(Refused, match="only a hypothesis"):
        check_proof(Sequent((), law), Proof(rule="reflexivity"), classical=False)
    with pytest.raises(Refused, match="a law cannot be assumed"):
        RULES["or_out"].apply(Sequent((), P), ("m", "n"), (law, P))
    proof = Proof(rule="replacement", formulas=(law, law))
    with pytest.raises(Refused, match="a formula with variables"):
        check_proof(Sequent((), Equal(Constant("a"), Constant("b"))), proof, classical=False)


def test_contradiction_is_classical() -> None:
    theorem = make_theorem("contra", Random(1))
    proof = prove(theorem)
    # contradict, two rules per applied implication, one per hypothesis used alone.
    assert check_proof(theorem.sequent, proof, classical=True) == 6
    with pytest.raises(Refused, match="no rule contradiction"):
        check_proof(theorem.sequent, proof, classical=False)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_every_kind_comes_with_a_script_that_the_kernel_accepts(kind: str) -> None:
    for seed in range(25):
        theorem = make_theorem(kind, Random(f"{kind} {seed}"))
        check_proof(theorem.sequent, prove(theorem), classical=theorem.classical)


def mutate(proof: Proof, random: Random) -> Proof:
    """Change one step: its rule, names, formulas, or premises."""
    if proof.premises and random.random() < 0.6:
        at = random.randrange(len(proof.premises))
        premises = list(proof.premises)
        premises[at] = mutate(premises[at], random)
        return replace(proof, premises=tuple(premises))
    match random.randrange(5):
        case 0:
            return replace(proof, rule=random.choice([*RULES, "hole", "sorry"]))
        case 1:
            return replace(proof, names=tuple(random.choice("abcdefghijkl") for _ in proof.names))
        case 2:
            return replace(proof, formulas=tuple(draw_formula(random, 1) for _ in proof.formulas))
        case 3:
            return replace(proof, premises=proof.premises[::-1])
    return replace(proof, premises=proof.premises[1:])


def test_of_four_thousand_damaged_proofs_none_is_accepted_for_a_false_theorem() -> None:
    """Theorems with the goal exchanged for one that some valuation makes false: whatever the proof, it is refused."""
    random = Random("damage")
    kinds = [kind for kind in KINDS if kind != "equations"]
    theorems = [make_theorem(kind, Random(seed)) for seed in range(4) for kind in kinds]
    proved = [(theorem, prove(theorem)) for theorem in theorems]
    refused = accepted = 0
    for number in range(4_000):
        sequent, _, _ = draw_case(random)
        theorem, proof = random.choice(proved)
        for _ in range(random.randrange(1, 3)):
            proof = mutate(proof, random)
        target = sequent if number % 2 else _rename(theorem.sequent)
        try:
            check_proof(target, proof, classical=True)
            accepted += 1
            assert all(holds(target, world) for world in list_worlds())
        except Refused:
            refused += 1
    assert refused > 3_500
    assert refused + accepted == 4_000


def _rename(sequent: Sequent) -> Sequent:
    """Bring the atoms of a sequent to those of the truth tables: the first three as they occur, all others `r`."""
    found: list[str] = []
    text = [repr(formula) for _, formula in sequent.hypotheses] + [repr(sequent.conclusion)]
    for part in " ".join(text).split("Atom(name='")[1:]:
        name = part[0]
        if name not in found:
            found.append(name)
    new = {name: "pqr"[min(index, 2)] for index, name in enumerate(found)}
    return Sequent(
        tuple((name, _replace(formula, new)) for name, formula in sequent.hypotheses), _replace(sequent.conclusion, new)
    )


def _replace(formula: Formula, new: dict[str, str]) -> Formula:
    if isinstance(formula, Atom):
        return Atom(new[formula.name])
    if isinstance(formula, Falsehood | Equal):
        return formula
    return type(formula)(_replace(formula.left, new), _replace(formula.right, new))


TEXTS: Sequence[tuple[str, str]] = (
    ("p & q > r | s > F", "p /\\ q -> r \\/ s -> False"),
    ("( p > q ) > r", "( p -> q ) -> r"),
    ("( a * b ) * c = a * ( b * c )", "( a * b ) * c = a * ( b * c )"),
    ("rev ( ?x :: ?y ) = ( rev ?y ) ++ ( ?x :: nil )", "rev ( ?x :: ?y ) = ( rev ?y ) ++ ( ?x :: nil )"),
)


@pytest.mark.parametrize(("terse", "full"), TEXTS)
def test_formulas_read_and_write_in_both_styles(terse: str, full: str) -> None:
    formula = parse_formula(terse)
    assert parse_formula(full) == formula
    assert (format_formula(formula, "terse"), format_formula(formula, "full")) == (terse, full)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_formula_is_read_back(random: Random) -> None:
    formula: Formula = draw_formula(random, 4)
    if random.random() < 0.5:
        formula = Equal(draw_term(random, 3, ("x",)), draw_term(random, 3))
    for style in ("terse", "full"):
        assert parse_formula(format_formula(formula, style)) == formula
