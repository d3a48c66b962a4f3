"""A theorem: what is to be proved, in which logic, and the script that proves it where one is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.types import Task
from turnwise_worlds.proofs.kernel.check import check_sequent
from turnwise_worlds.proofs.kernel.formula import Atom, Equal, Falsehood, Formula
from turnwise_worlds.proofs.kernel.rules import Refused
from turnwise_worlds.proofs.kernel.sequent import Sequent
from turnwise_worlds.proofs.syntax import format_formula, parse_formula
from turnwise_worlds.proofs.words import EQUATIONAL, NAMES, PROPOSITIONAL, TACTICS, Tactic


@dataclass(frozen=True, slots=True, kw_only=True)
class Theorem:
    """One task."""

    sequent: Sequent
    classical: bool = False
    """Whether proofs by contradiction are accepted."""
    names: tuple[str, ...] = NAMES
    """Where names of new hypotheses come from."""
    script: tuple[Tactic, ...] = ()
    """Tactics that prove it; empty where none are known."""

    @property
    def is_equational(self) -> bool:
        """Whether it is about equations; else it is propositional."""
        return isinstance(self.sequent.conclusion, Equal)

    @property
    def tactics(self) -> tuple[str, ...]:
        """Names of the tactics of its logic."""
        words = EQUATIONAL if self.is_equational else PROPOSITIONAL
        return words if self.classical else tuple(word for word in words if word != "contradict")

    def to_json(self) -> dict[str, Any]:
        """The theorem as plain data, formulas in the terse style."""
        hypotheses = [[name, format_formula(formula, "terse")] for name, formula in self.sequent.hypotheses]
        return {
            "hypotheses": hypotheses,
            "goal": format_formula(self.sequent.conclusion, "terse"),
            "classical": self.classical,
            "names": list(self.names),
            "script": [[tactic.word, tactic.name] for tactic in self.script],
        }


def read_theorem(row: Mapping[str, Any]) -> Theorem:
    """Read what `to_json` writes. `classical`, `names` and `script` may be left out.

    Raises DataError naming the column and what is wrong with it.
    """
    given, names, script = row.get("hypotheses", []), row.get("names", list(NAMES)), row.get("script", [])
    if not _is_pairs(given):
        raise DataError('"hypotheses" must be a list of pairs of a name and a formula')
    if not isinstance(row.get("goal"), str):
        raise DataError('"goal" must be a formula')
    if not isinstance(row.get("classical", False), bool):
        raise DataError('"classical" must be true or false')
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        raise DataError('"names" must be a list of words')
    if not _is_pairs(script):
        raise DataError('"script" must be a list of pairs of a tactic and a name')
    for name in (*names, *(name for name, _ in given)):
        if not name.isidentifier() or not name.isascii():
            raise DataError(f"{name[:40]!r} is no name for a hypothesis; use letters, digits and underscores")
    for word, _ in script:
        if word not in TACTICS:
            raise DataError(f"{word[:40]!r} is no tactic; use one of {', '.join(TACTICS)}")
    sequent = Sequent(tuple((name, parse_formula(text)) for name, text in given), parse_formula(row["goal"]))
    _check(sequent)
    return Theorem(
        sequent=sequent,
        classical=row.get("classical", False),
        names=tuple(names),
        script=tuple(Tactic(word, name) for word, name in script),
    )


def theorem_of(task: Task) -> Theorem:
    """Return the theorem of a task. Policies and environments ask for the same ones again and again."""
    return _read_payload(json.dumps(task.payload))


@lru_cache(maxsize=4096)
def _read_payload(text: str) -> Theorem:
    return read_theorem(json.loads(text))


def _check(sequent: Sequent) -> None:
    formulas = [sequent.conclusion, *(formula for _, formula in sequent.hypotheses)]
    if len({isinstance(formula, Equal) for formula in formulas}) > 1 or any(map(_has_inner_equation, formulas)):
        raise DataError("a theorem is about propositions or about equations; this one mixes them")
    try:
        check_sequent(sequent)
    except Refused as cause:
        raise DataError(str(cause)) from None


def _has_inner_equation(formula: Formula) -> bool:
    if isinstance(formula, Equal | Atom | Falsehood):
        return False
    parts = (formula.left, formula.right)
    return any(isinstance(part, Equal) or _has_inner_equation(part) for part in parts)


def _is_pairs(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(each, str) for each in pair)
        for pair in value
    )
