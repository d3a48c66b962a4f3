"""Choose one of several attempts at a task by scores or votes: best-of-n, weighted votes, and their controls. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise.core.seeds import rng
from turnwise.core.types import Trajectory
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.summary import is_success

Fold = Literal["last", "min", "prod"]
FOLDS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "prod": math.prod,
}
"""From scores of steps to the score of an attempt: its last step's, its worst step's (Math-Shepherd), the product."""
Choose = Callable[[Sequence[Trajectory]], Trajectory]
"""Chooses the answer among a task's attempts, of which there is at least one."""
Score = Callable[[Trajectory], float]


def fold_scores(scores: Sequence[float], how: str) -> float:
    """Return the score of an attempt from those of its turns, by a name of `FOLDS`; 0 without turns, as nothing was
    answered."""
    return FOLDS[how](scores) if scores else 0.0


def choose_best(score: Score) -> Choose:
    """Best-of-n: the attempt with the highest score, the first of equal ones."""
    return lambda attempts: max(attempts, key=score)


def choose_by_votes(score: Score) -> Choose:
    """Weighted vote: the answer whose attempts' scores have the highest sum, the first of equal ones; the attempt that
    gave it first. With equal scores it is the majority."""

    def choose(attempts: Sequence[Trajectory]) -> Trajectory:
        sums: dict[str, float] = {}
        for attempt in attempts:
            answer = read_answer(attempt)
            sums[answer] = sums.get(answer, 0.0) + score(attempt)
        best = max(sums, key=lambda answer: sums[answer])
        return next(attempt for attempt in attempts if read_answer(attempt) == best)

    return choose


def choose_right(attempts: Sequence[Trajectory]) -> Trajectory:
    """pass@n: a right attempt if there is one. It reads the reward: a bound, no way to answer."""
    return next((attempt for attempt in attempts if is_success(attempt)), attempts[0])


def choose_first(attempts: Sequence[Trajectory]) -> Trajectory:
    """One sample."""
    return attempts[0]


def score_at_random(seed: int) -> Score:
    """The control of every best-of-n: a number that depends on an attempt's replies and carries no information.

    Equal attempts have equal scores, as with any model. Right ones often coincide and share one draw, while each wrong
    one is a draw of its own: a best-of-n by scores without information is then worse than one sample."""
    return lambda attempt: rng(seed, *[turn.message.text for turn in attempt.turns]).random()


def read_answer(attempt: Trajectory) -> str:
    """The text of the last reply, which votes compare; "" without replies."""
    return " ".join(attempt.turns[-1].message.text.split()) if attempt.turns else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """How often a way to choose was right."""

    name: str
    attempts: int
    """Attempts per task among which it chose."""
    right: int
    tasks: int

    @property
    def share(self) -> float:
        """Share of right answers."""
        return self.right / self.tasks

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% Wilson interval."""
        return compute_wilson_interval(self.right, self.tasks)


def rate_choices(
    tasks: Sequence[Sequence[Trajectory]], ways: Mapping[str, Choose], *, attempts: Sequence[int]
) -> list[Rated]:
    """Rate every way on the first n attempts of every task, for every n of `attempts`. Raises ValueError without tasks,
    or for a task with fewer attempts."""
    if not tasks or min(map(len, tasks)) < max(attempts):
        raise ValueError(
            f"{len(tasks)} tasks with at least {min(map(len, tasks), default=0)} attempts; {max(attempts)} needed"
        )
    return [
        Rated(name=name, attempts=n, right=sum(is_success(choose(each[:n])) for each in tasks), tasks=len(tasks))
        for name, choose in ways.items()
        for n in attempts
    ]
