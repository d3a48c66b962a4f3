"""The make-up of trajectories by draw, member and turn: equal in every schedule that is simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from turnwise.core.seeds import rng


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply and what follows it."""

    context: int
    """Tokens before it that the previous turn did not have: the prompt, or a tool's answer."""
    sampled: int
    wait_s: float = 0.0
    """Seconds of the tools that it calls; for the last turn, of the judge that scores the trajectory."""


Member = Sequence[Turn]
Work = Callable[[int, int], Member]
"""The turns of a draw's member, at least one. The same arguments give the same turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A log-normal distribution by its median and its 99th percentile; it is always 0 if both are 0."""

    median: float
    p99: float

    def __post_init__(self) -> None:
        if not (self.median == self.p99 == 0 or 0 < self.median <= self.p99):
            raise ValueError(f"{self}: the median must be above 0 and at most the 99th percentile, or both must be 0")

    @property
    def scale(self) -> float:
        """Standard deviation of the logarithm."""
        return math.log(self.p99 / self.median) / NormalDist().inv_cdf(0.99) if self.median else 0.0

    def at(self, deviate: float) -> float:
        """The value that lies this many standard deviations above the median."""
        return self.median * math.exp(self.scale * deviate)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedWork:
    """Trajectories whose lengths and waits are assumed. Implements `Work`."""

    prompt: int
    """Tokens before the first reply."""
    sampled: Spread
    """Tokens of all replies of a trajectory."""
    turns: int = 1
    """Replies of a trajectory: one, plus one after each answer of a tool."""
    observation: int = 0
    """Tokens of a tool's answer."""
    tool_s: Spread = Spread(median=0.0, p99=0.0)
    """Seconds of one call."""
    judge_s: float = 0.0
    max_sampled: int | None = None
    """Token limit per reply; None means no limit."""
    likeness: float = 0.0
    """Correlation between the lengths (their logarithms) of a group's members: 0 if independent, 1 if equal."""
    seed: int = 0

    def __call__(self, draw: int, member: int) -> Member:
        """See `Work`."""
        own = rng("work", self.seed, draw, member)
        deviate = math.sqrt(1 - self.likeness) * own.gauss(0.0, 1.0)
        if self.likeness:
            deviate += math.sqrt(self.likeness) * rng("work of the draw", self.seed, draw).gauss(0.0, 1.0)
        total = max(self.turns, round(self.sampled.at(deviate)))
        if self.max_sampled is not None:
            total = min(total, max(self.turns, self.max_sampled))
        lengths = [total * (turn + 1) // self.turns - total * turn // self.turns for turn in range(self.turns)]
        waits = [self.tool_s.at(own.gauss(0.0, 1.0)) for _ in lengths[1:]]
        contexts = [self.prompt, *(self.observation for _ in lengths[1:])]
        return tuple(map(Turn, contexts, lengths, [*waits, self.judge_s]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWork:
    """The trajectories of a run. Implements `Work`: draws and members beyond the stored ones repeat them."""

    draws: Mapping[int, Sequence[Member]]
    """Members by index of the draw, from 0 without gaps."""

    def __call__(self, draw: int, member: int) -> Member:
        """See `Work`."""
        members = self.draws[draw % len(self.draws)]
        return members[member % len(members)]


def divide(work: Work, tokens: int) -> Work:
    """The same trajectories in pieces of at most `tokens` sampled tokens; they may change engines between pieces."""

    def cut(draw: int, member: int) -> Member:
        pieces: list[Turn] = []
        for turn in work(draw, member):
            sizes = [*[tokens] * ((turn.sampled - 1) // tokens)]
            sizes.append(turn.sampled - sum(sizes))
            waits = [*(0.0 for _ in sizes[1:]), turn.wait_s]
            contexts = [turn.context, *(0 for _ in sizes[1:])]
            pieces += map(Turn, contexts, sizes, waits)
        return tuple(pieces)

    return cut
