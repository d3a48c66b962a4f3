"""What a card measures, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from turnwise.cards.overlap import Overlap
from turnwise.evaluation.intervals import compute_wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many of how many."""

    hits: float
    """A fraction where several roles share an episode."""
    count: int

    @property
    def share(self) -> float | None:
        """The share, None of nothing."""
        return self.hits / self.count if self.count else None

    def describe(self) -> str:
        """Return the share, its 95% Wilson interval, and the counts."""
        if not self.count:
            return "not measured"
        low, high = compute_wilson_interval(min(self.hits, self.count), self.count)
        return f"{self.hits / self.count:.1%} ({low:.1%} to {high:.1%}; {self.hits:g} of {self.count})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """The held-out tasks of an evaluation."""

    asked: int
    distinct: int
    """Different tasks, by id."""
    copies: int
    left_out: int
    """Tasks that cannot be built."""
    example: str
    """Why one is left out, or which is a copy; empty if none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """A scripted policy on held-out tasks."""

    success: Rate
    number: float | None
    """Mean of the recipe's number; None if no episode has it."""
    invalid: int
    """Episodes that could not be played or scored."""
    problem: str
    """Why one of them could not; empty if all could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCount:
    """How often a kind of answer or reply was accepted."""

    kind: str
    is_right: bool | None
    """Whether it should be; None where that is not known."""
    accepted: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two graders on the same answers."""

    by: str
    """The second one."""
    same: Rate
    examples: tuple[str, ...]
    """A few of the answers on which they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuity:
    """How finely rewards tell attempts apart."""

    source: str
    """Whose attempts: "mixed" are those of a scripted policy that tosses a coin between oracle and random; else the
    run."""
    distinct_rewards: int
    with_signal: Rate
    """Groups in which not all rewards are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that is the same each time it is measured. None: not measured, and `missing` says why."""

    tasks: TaskCounts
    policies: Mapping[str, PolicyResult]
    """By name: "oracle", "random", and the recipe's demonstrator."""
    gold: Rate | None
    """Held-out tasks whose own gold answer, stated alone, the environment accepts."""
    disagreements: tuple[str, ...]
    """Ids of tasks on which oracle and gold answer differ."""
    opinions: Agreement | None
    """Oracle's successes as another checker sees them (`SecondOpinion`)."""
    repeated: str
    """What differed when oracle's and random's episodes were played again; empty if nothing did."""
    regraded: Rate | None
    """Episodes whose replies, said again, got another reward."""
    hand: tuple[KindCount, ...]
    """Hand cases of the grader."""
    near: tuple[KindCount, ...]
    """Generated near-misses."""
    attacks: tuple[KindCount, ...]
    """Replies without work."""
    agreement: Agreement | None
    """The environment and SQuAD's exact match on gold answers and near-misses."""
    overlap: Overlap | None
    continuity: Continuity | None
    missing: Mapping[str, str]
    """Why a part is not measured, by part."""
    probe: str
    """Digest of ids and rewards of the first held-out tasks: cheap to measure again."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What depends on the machine. None: nothing was played."""

    seconds_per_100: float | None
    """Seconds for 100 held-out tasks by a scripted policy, one after the other, without a model."""
    score_ms: float | None
    """Median milliseconds of scoring one episode."""
    checks_per_s: float | None
    """Episodes played and scored per second, many at a time."""
