"""Shortest scripts by search: what the oracle does where it leaves the known script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnwise_worlds.proofs.kernel.formula import And, Atom, Equal, Falsehood, Formula, Implies, Or
from turnwise_worlds.proofs.kernel.rules import Refused
from turnwise_worlds.proofs.tactics import Goal, apply_tactic
from turnwise_worlds.proofs.words import Tactic

MAX_DEPTH = 10
"""Tactics of a script, at most."""
MAX_TRIES = 200
"""Tactics tried in one search, at most."""


def find_script(goal: Goal, pool: Sequence[str], *, classical: bool, max_depth: int = MAX_DEPTH) -> list[Tactic] | None:
    """Return a shortest script that proves a goal, focused: a step that loses nothing is taken without alternatives.

    None if there is none within `max_depth` tactics and `MAX_TRIES` attempts.
    """
    search = _Search(pool, classical)
    for depth in range(1, max_depth + 1):
        found = search.prove(goal, depth, frozenset())
        if found is not None or search.tries > MAX_TRIES:
            return found
    return None


class _Search:
    """One iterative deepening."""

    def __init__(self, pool: Sequence[str], classical: bool) -> None:
        self._pool, self._classical = pool, classical
        self.tries = 0

    def prove(self, goal: Goal, depth: int, seen: frozenset[tuple[object, ...]]) -> list[Tactic] | None:
        """Return a script of at most `depth` tactics; `seen` are the goals on the way here."""
        key = (goal.sequent.conclusion, frozenset(formula for _, formula in goal.hypotheses))
        if depth < 1 or key in seen or self.tries > MAX_TRIES:
            return None
        for tactic in list_tactics(goal, classical=self._classical):
            self.tries += 1
            try:
                _, goals = apply_tactic(goal, tactic, self._pool, classical=self._classical)
            except Refused:
                continue
            script = [tactic]
            for index, each in enumerate(goals):
                left = depth - len(script) - (len(goals) - index - 1)
                rest = self.prove(each, left, seen | {key})
                if rest is None:
                    break
                script += rest
            else:
                return script
        return None


def list_tactics(goal: Goal, *, classical: bool) -> Iterator[Tactic]:
    """Yield the tactics worth trying: one where it loses nothing, else all that may apply."""
    conclusion = goal.sequent.conclusion
    if isinstance(conclusion, Equal):
        yield from _list_rewrites(goal, conclusion)
        return
    exact = next((name for name, formula in goal.hypotheses if formula == conclusion), None)
    if exact is not None:
        yield Tactic("apply", exact)
        return
    # A hypothesis that ends in a compound goal may be shorter than taking the goal apart, so both are tried there.
    ends = [Tactic("apply", name) for name, formula in goal.hypotheses if _ends_in(formula, conclusion)]
    apart = [Tactic("destruct", name) for name, formula in goal.hypotheses if isinstance(formula, And | Or | Falsehood)]
    match conclusion:
        case Implies():
            yield from (*ends, Tactic("intro"))
        case And():
            yield from (*ends, *apart, Tactic("split"))
        case Or():
            yield from (*ends, *apart, Tactic("left"), Tactic("right"))
        case Atom() | Falsehood():
            yield from (*ends, *apart)
            if isinstance(conclusion, Atom):
                yield from [Tactic("exfalso")] + [Tactic("contradict")] * classical


def _ends_in(formula: Formula, conclusion: Formula) -> bool:
    while formula != conclusion:
        if not isinstance(formula, Implies):
            return False
        formula = formula.right
    return True


def _list_rewrites(goal: Goal, conclusion: Equal) -> Iterator[Tactic]:
    if conclusion.left == conclusion.right:
        yield Tactic("reflexivity")
        return
    for word in ("apply", "rewrite", "rewrite_back"):
        yield from (Tactic(word, name) for name, _ in goal.hypotheses)
