"""The checks of an audit, and their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from turnwise.core.types import TrajectoryId

CHECKS: Mapping[str, tuple[str, str]] = {
    "files": ("groups", "every finished group and step is stored completely"),
    "data": ("files", "the data files for tasks are unchanged since the start, or were accepted"),
    "documents": (
        "documents",
        "continual pre-training took the documents in its seed's order, and trained each token once per pass",
    ),
    "journal": ("draws", "each draw was trained in one step, was dropped for one reason, waits or is open"),
    "curriculum": ("draws", "from the results stored before, the sampler draws the same tasks again"),
    "masks": ("tokens", "each token belongs to one turn, and its mask follows from its author"),
    "turns": ("trajectories", "turns form a tree in time, every observation was answered, records are consistent"),
    "groups": ("groups", "members are complete and unique, and share one task"),
    "ledger": ("tokens", "sampled = trained + dropped, no token is too old, the stored tokens are the trained ones"),
    "prompts": ("turns", "each prompt extends the previous one, or a branch is recorded; pictures have their places"),
    "pictures": ("pictures", "each picture that a prompt shows is stored, and its pixels have its digest"),
    "crops": ("crops", "cutting a crop again from its source gives the stored crop"),
    "checkpoints": ("checkpoints", "every file is unchanged, and the weights match the journal"),
    "logprobs": ("tokens", "the recorded weight version reproduces the recorded log-probabilities"),
    "rewards": ("trajectories", "scoring again reproduces the recorded reward"),
    "opinions": ("trajectories", "the second opinion confirms every reward above 0"),
    "advantages": ("trajectories", "credit from the stored rewards reproduces the stored advantages"),
    "tools": ("calls", "running a tool again reproduces the recorded answer"),
}
"""Name of each check, what it counts, and what it proves, in the order of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One violation."""

    check: str
    """A name of `CHECKS`."""
    text: str
    step: int | None = None
    """The step that trained or dropped it; None if there is none."""
    draw: int | None = None
    """The draw; None if the breach concerns no single draw, or if `trajectory` names the draw."""
    trajectory: TrajectoryId | None = None
    """The trajectory; None if the breach concerns no single trajectory."""

    def __str__(self) -> str:
        places = [
            "" if self.step is None else f"step {self.step}",
            "" if self.draw is None or self.trajectory is not None else f"draw {self.draw}",
            "" if self.trajectory is None else f"trajectory {self.trajectory}",
        ]
        where = ", ".join(place for place in places if place)
        return f"[{self.check}] {where}: {self.text}" if where else f"[{self.check}] {self.text}"


@dataclass(slots=True, kw_only=True)
class Tally:
    """One check's outcome."""

    checked: int = 0
    breaches: list[Breach] = field(default_factory=list)
    not_checked: Counter[str] = field(default_factory=Counter)
    """Number of items not checked, by reason."""


class Tallies:
    """The outcome of every check while an audit runs."""

    def __init__(self) -> None:
        self.by_check = {name: Tally() for name in CHECKS}

    def __getitem__(self, check: str) -> Tally:
        return self.by_check[check]

    def take(self, breaches: Iterable[Breach]) -> None:
        """Record a violation."""
        for breach in breaches:
            self.by_check[breach.check].breaches.append(breach)

    def skip(self, check: str, reason: str, count: int) -> None:
        """Record items that could not be checked; a `count` of 0 is left out."""
        if count:
            self.by_check[check].not_checked[reason] += count
