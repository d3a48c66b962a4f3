"""Proofs of propositional logic as Metamath proofs from the excerpt of set.mm.

The hypotheses h1, h2, ... are the conjunction `( ( h1 /\\ h2 ) /\\ ... )`, the context of set.mm's deduction form, and
every rule is one of its theorems: a sequent is `|- ( context -> conclusion )`, or `|- conclusion` without hypotheses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turnwise_worlds.proofs.kernel.formula import And, Atom, Equal, Falsehood, Formula, Implies, Or
from turnwise_worlds.proofs.kernel.rules import RULES, Proof, Refused
from turnwise_worlds.proofs.kernel.sequent import Sequent

Labels = list[str]
"""A piece of a Metamath proof: labels in reverse Polish order."""
_SYNTAX = {Implies: ("->", "wi"), And: ("/\\", "wa"), Or: ("\\/", "wo")}


@dataclass(frozen=True, slots=True)
class Context:
    """The hypotheses of a sequent. Without any it starts from `T.`, to which more may be added."""

    names: tuple[str, ...]
    wffs: tuple[tuple[str, ...], ...]
    """The labels that build each hypothesis; the first may be that of `T.`, with the name ""."""

    @staticmethod
    def of(sequent: Sequent) -> Context:
        """Return the context of a sequent."""
        if not sequent.hypotheses:
            return Context(("",), (("wtru",),))
        names, formulas = zip(*sequent.hypotheses, strict=True)
        return Context(names, tuple(tuple(build_wff(formula)) for formula in formulas))

    def add(self, name: str, formula: Formula) -> Context:
        """Return the context with one more hypothesis."""
        return Context((*self.names, name), (*self.wffs, tuple(build_wff(formula))))

    def build(self) -> Labels:
        """Return the labels that build the conjunction."""
        return self._build(len(self.wffs))

    def _build(self, count: int) -> Labels:
        labels = list(self.wffs[0])
        for wff in self.wffs[1:count]:
            labels += [*wff, "wa"]
        return labels

    def find(self, name: str) -> Labels:
        """Return the proof that the context implies a hypothesis."""
        index = self.names.index(name)
        wff = list(self.wffs[index])
        proof = [*self._build(index), *wff, "simpr"] if index else [*wff, "id"]
        for count in range(index + 1, len(self.wffs)):
            proof = [*self._build(count), *wff, *self.wffs[count], *proof, "adantr"]
        return proof


def write_formula(formula: Formula) -> str:
    """Write a formula in set.mm's symbols; an atom `p` is `atom.p`."""
    match formula:
        case Atom(name):
            return f"atom.{name}"
        case Falsehood():
            return "F."
        case Implies(left, right) | And(left, right) | Or(left, right):
            return f"( {write_formula(left)} {_SYNTAX[type(formula)][0]} {write_formula(right)} )"
    raise Refused("an equation is no formula of propositional logic")


def build_wff(formula: Formula) -> Labels:
    """Return the labels that build a formula."""
    match formula:
        case Atom(name):
            return [f"wff.{name}"]
        case Falsehood():
            return ["wfal"]
        case Implies(left, right) | And(left, right) | Or(left, right):
            return [*build_wff(left), *build_wff(right), _SYNTAX[type(formula)][1]]
    raise Refused("an equation is no formula of propositional logic")


def export_logic(sequent: Sequent, proof: Proof, label: str) -> str:
    """Return declarations of the atoms and the theorem `label`, to be read after the excerpt.

    The statement is made of `sequent` alone, so that whoever accepts the proof accepts it for this theorem. Raises
    Refused where the kernel's rules do not apply.
    """
    formulas = [sequent.conclusion, *(formula for _, formula in sequent.hypotheses)]
    atoms = sorted({name for formula in formulas for name in list_atoms(formula)} | set(_list_proof_atoms(proof)))
    labels = _export(sequent, Context.of(sequent), proof)
    if not sequent.hypotheses:
        labels = [*build_wff(sequent.conclusion), *labels, "trud"]
    declared = [f"  $v atom.{name} $.\n  wff.{name} $f wff atom.{name} $." for name in atoms]
    return "\n".join(
        ["${", *declared, f"  {label} $p {state_logic(sequent)} $=", f"    {' '.join(labels)} $.", "$}", ""]
    )


def state_logic(sequent: Sequent) -> str:
    """Write a sequent as a statement."""
    statement = write_formula(sequent.conclusion)
    if sequent.hypotheses:
        context = write_formula(sequent.hypotheses[0][1])
        for _, formula in sequent.hypotheses[1:]:
            context = f"( {context} /\\ {write_formula(formula)} )"
        statement = f"( {context} -> {statement} )"
    return f"|- {statement}"


def list_atoms(formula: Formula) -> list[str]:
    """Return the names of a formula's atoms."""
    if isinstance(formula, Atom):
        return [formula.name]
    if isinstance(formula, Falsehood | Equal):
        return []
    return [*list_atoms(formula.left), *list_atoms(formula.right)]


def _list_proof_atoms(proof: Proof) -> list[str]:
    own = [name for formula in proof.formulas for name in list_atoms(formula)]
    return own + [name for premise in proof.premises for name in _list_proof_atoms(premise)]


def _export(sequent: Sequent, context: Context, proof: Proof) -> Labels:
    """Return the proof of `( context -> conclusion )`."""
    rule = RULES[proof.rule]
    premises = rule.apply(sequent, proof.names, proof.formulas)
    if proof.rule == "hypothesis":
        return context.find(proof.names[0])
    added = [each.hypotheses[len(sequent.hypotheses) :] for each in premises]
    contexts = [context.add(*new[0]) if new else context for new in added]
    proofs = [_export(*each) for each in zip(premises, contexts, proof.premises, strict=True)]
    write = _RULES.get(proof.rule)
    if write is None:
        raise Refused(f"{proof.rule} is no rule of propositional logic")
    return write(context.build(), build_wff(sequent.conclusion), sequent.conclusion, proof.formulas, proofs)


Write = Callable[[Labels, Labels, Formula, Sequence[Formula], Sequence[Labels]], Labels]


def _implies_in(
    gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]
) -> Labels:
    assert isinstance(formula, Implies)
    return [*gamma, *build_wff(formula.left), *build_wff(formula.right), *of[0], "ex"]


def _implies_out(
    gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]
) -> Labels:
    return [*gamma, *build_wff(given[0]), *goal, *of[1], *of[0], "mpd"]


def _and_in(gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]) -> Labels:
    assert isinstance(formula, And)
    return [*gamma, *build_wff(formula.left), *build_wff(formula.right), *of[0], *of[1], "jca"]


def _and_out_left(
    gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]
) -> Labels:
    return [*gamma, *goal, *build_wff(given[0]), *of[0], "simpld"]


def _and_out_right(
    gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]
) -> Labels:
    return [*gamma, *build_wff(given[0]), *goal, *of[0], "simprd"]


def _or_in_left(
    gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]
) -> Labels:
    assert isinstance(formula, Or)
    return [*gamma, *build_wff(formula.left), *build_wff(formula.right), *of[0], "orcd"]


def _or_in_right(
    gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]
) -> Labels:
    assert isinstance(formula, Or)
    return [*gamma, *build_wff(formula.right), *build_wff(formula.left), *of[0], "olcd"]


def _or_out(gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]) -> Labels:
    left, right = map(build_wff, given)
    return [*gamma, *left, *goal, *right, *of[1], *of[2], *of[0], "mpjaodan"]


def _false_out(gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]) -> Labels:
    return [*gamma, "wfal", *goal, *of[0], *goal, "falim", "syl"]


def _contradiction(
    gamma: Labels, goal: Labels, formula: Formula, given: Sequence[Formula], of: Sequence[Labels]
) -> Labels:
    """From `( ( context /\\ ( goal -> F. ) ) -> F. )` by Peirce's law."""
    negation = [*goal, "wfal", "wi"]
    inside = [*gamma, *negation, "wa", "wfal", *goal, *of[0], *goal, "falim", "syl"]
    implied = [*gamma, *negation, *goal, *inside, "ex"]
    return [*gamma, *negation, *goal, "wi", *goal, *implied, *goal, "wfal", "peirce", "syl"]


_RULES: Mapping[str, Write] = {
    "implies_in": _implies_in,
    "implies_out": _implies_out,
    "and_in": _and_in,
    "and_out_left": _and_out_left,
    "and_out_right": _and_out_right,
    "or_in_left": _or_in_left,
    "or_in_right": _or_in_right,
    "or_out": _or_out,
    "false_out": _false_out,
    "contradiction": _contradiction,
}
"""How each rule is written: the context, the goal and its labels, the rule's formulas, the premises' proofs."""
