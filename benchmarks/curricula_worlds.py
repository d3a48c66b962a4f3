"""Worlds whose training split is mostly of one kind, and whose held-out split has every kind equally often."""

from __future__ import annotations

from typing import Any

from turnwise.core.protocols import Split
from turnwise.core.types import Message
from turnwise.environments.math_code.family import MathCode
from turnwise.environments.search_qa.family import SearchQA

GAP = {"1hop": 0.84, "2hop": 0.11, "3hop": 0.05}
OVERLAP = {"chain": 0.6, "word": 0.2, "power": 0.1, "count": 0.06, "equation": 0.04}


class Gap(SearchQA):
    """Questions of one, two and three hops: after the warm-up the first are mostly solved, the others never."""

    def __init__(self, **arguments: Any) -> None:
        """Arguments of `search_qa`, whose `kinds` are replaced."""
        super().__init__(**{**arguments, "kinds": GAP})
        self._even = SearchQA(**{**arguments, "kinds": dict.fromkeys(GAP, 1.0)})

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """See `GeneratedFamily`."""
        return self._even.generate(split, index) if split == "heldout" else super().generate(split, index)


class Overlap(MathCode):
    """Problems for the interpreter: sampling from the policy after the warm-up finds solutions of every kind."""

    def __init__(self, **arguments: Any) -> None:
        """Arguments of `math_code`, whose `kinds` are replaced."""
        super().__init__(**{**arguments, "kinds": OVERLAP})
        self._even = MathCode(**{**arguments, "kinds": dict.fromkeys(OVERLAP, 1.0)})

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """See `GeneratedFamily`."""
        return self._even.generate(split, index) if split == "heldout" else super().generate(split, index)
