"""How long clients wait: for their turn, for the first token, and for the whole reply."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Watch:
    """The times of one reply, by the performance counter."""

    asked: float = field(default_factory=time.perf_counter)
    begun: float | None = None
    """When the engine was asked; None while the reply waits for its turn."""
    heard: float | None = None
    """When its first token was known; None before."""

    def begin(self) -> None:
        """Note that the engine is asked."""
        self.begun = time.perf_counter()

    def hear(self) -> None:
        """Note that a token is known. Only the first call counts."""
        self.heard = time.perf_counter() if self.heard is None else self.heard

    @property
    def queue_s(self) -> float:
        """Seconds until the engine was asked."""
        return (self.asked if self.begun is None else self.begun) - self.asked

    @property
    def first_token_s(self) -> float:
        """Seconds until the first token was known."""
        return (self.asked if self.heard is None else self.heard) - self.asked


@dataclass(slots=True, eq=False)
class Spent:
    """Durations of one kind, in seconds."""

    count: int = 0
    total: float = 0.0
    most: float = 0.0


class Times:
    """Durations by kind: "queue", "first_token", "reply"."""

    def __init__(self) -> None:
        self.spent: dict[str, Spent] = {}

    def note(self, kind: str, seconds: float) -> None:
        """Add one duration."""
        self._add(kind, Spent(1, seconds, seconds))

    def merge(self, other: Times) -> None:
        """Add those of another."""
        for kind, spent in other.spent.items():
            self._add(kind, spent)

    def describe(self) -> Mapping[str, Mapping[str, float]]:
        """Return number, sum and largest of every kind as JSON values."""
        return {
            kind: {"count": spent.count, "sum": round(spent.total, 6), "max": round(spent.most, 6)}
            for kind, spent in sorted(self.spent.items())
        }

    def _add(self, kind: str, more: Spent) -> None:
        known = self.spent.setdefault(kind, Spent())
        known.count += more.count
        known.total += more.total
        known.most = max(known.most, more.most)
