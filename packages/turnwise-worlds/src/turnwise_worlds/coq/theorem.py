"""A theorem with what an episode needs to know of it, as it travels in a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise_worlds.proofs.words import NAMES, Tactic
from turnwise_worlds.proving.prover import Theorem


@dataclass(frozen=True, slots=True, kw_only=True)
class CoqTheorem:
    """One task."""

    theorem: Theorem
    names: tuple[str, ...] = NAMES
    """Where names of new hypotheses come from in the terse style."""
    script: tuple[Tactic, ...] = ()
    """Calls that prove it; empty where none are known."""

    def to_json(self) -> dict[str, Any]:
        """The theorem as plain data."""
        return {
            "name": self.theorem.name,
            "statement": self.theorem.statement,
            "imports": list(self.theorem.imports),
            "names": list(self.names),
            "script": [[tactic.word, tactic.name] for tactic in self.script],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CoqTheorem:
        """Read what `to_json` writes."""
        theorem = Theorem(name=data["name"], statement=data["statement"], imports=tuple(data["imports"]))
        script = tuple(Tactic(word, name) for word, name in data["script"])
        return CoqTheorem(theorem=theorem, names=tuple(data["names"]), script=script)
