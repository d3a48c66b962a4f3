"""Success against effort: several attempts at every question, chosen from by votes, by stated confidence, or at random.

BrowseComp shows majority votes, votes weighted by confidence and best-of-n by confidence over 64 samples. The control
of all of them is one attempt drawn at random, whose success does not depend on n; the bound is pass@n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from turnwise.core.errors import DataError
from turnwise.core.roles import take_measured
from turnwise.core.seeds import rng
from turnwise.core.types import Invalid, Trajectory, TrajectoryGroup
from turnwise.evaluation.intervals import compute_pass_at, compute_wilson_interval
from turnwise.evaluation.summary import is_success
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise.rewards.normal_form import normalize_answer
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups
from turnwise_synthesis.browsecomp.calibration import Stated, read_confidence

NUM_DRAWS = 50
"""Random choices of n attempts per question over which a way to choose is averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a question."""

    answer: str | None
    """In normal form; None if it gave none, which is no vote."""
    is_right: bool
    stated: Stated
    searches: int


Choose = Callable[[Sequence[Attempt], Random], Attempt | None]
"""Chooses one attempt; None if none gave an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Success of a way to choose from n attempts."""

    way: str
    attempts: int
    success: float
    low: float
    high: float
    """Wilson's 95% interval over questions."""
    searches: float
    """Mean searches of all n attempts."""


def choose_majority(attempts: Sequence[Attempt], random: Random) -> Attempt | None:
    """The answer of most attempts; of equally many, one at random."""
    return _vote(attempts, random, lambda attempt: 1.0)


def choose_weighted(attempts: Sequence[Attempt], random: Random) -> Attempt | None:
    """The answer with the highest sum of stated confidences; an attempt without one counts 0."""
    return _vote(attempts, random, lambda attempt: attempt.stated.value or 0.0)


def choose_surest(attempts: Sequence[Attempt], random: Random) -> Attempt | None:
    """Best-of-n: the attempt with the highest stated confidence; of equally sure ones, one at random."""
    answered = [attempt for attempt in attempts if attempt.answer is not None]
    highest = max((attempt.stated.value or 0.0 for attempt in answered), default=0.0)
    best = [attempt for attempt in answered if (attempt.stated.value or 0.0) == highest]
    return random.choice(best) if best else None


def choose_at_random(attempts: Sequence[Attempt], random: Random) -> Attempt | None:
    """The control: any attempt."""
    return random.choice(attempts)


WAYS: Mapping[str, Choose] = {
    "majority": choose_majority,
    "weighted by confidence": choose_weighted,
    "best by confidence": choose_surest,
    "random (control)": choose_at_random,
}
CONFIDENT = ("weighted by confidence", "best by confidence")
"""Ways that need a stated confidence."""
BOUND = "pass@n (bound)"


def to_attempt(trajectory: Trajectory) -> Attempt:
    """Read a scored trajectory."""
    replies = [turn.message for turn in trajectory.turns]
    answer = final_answer(AnswerCase(replies=replies, golds=(), stop=trajectory.stop))
    return Attempt(
        answer=None if answer is None or not answer.strip() else normalize_answer(answer),
        is_right=is_success(trajectory),
        stated=read_confidence(replies[-1].text if replies else ""),
        searches=trajectory.num_tool_calls,
    )


def read_questions(groups: Sequence[TrajectoryGroup]) -> tuple[list[list[Attempt]], int]:
    """Return the attempts at every question, and how many attempts were invalid and are left out."""
    questions, invalid = [], 0
    for group in groups:
        measured = take_measured(group)
        scored = [each for each in measured if not isinstance(each.reward, Invalid)]
        invalid += len(measured) - len(scored)
        if scored:
            questions.append([to_attempt(each) for each in scored])
    return questions, invalid


def load_questions(run: Path, evaluation: str = "") -> tuple[str, list[list[Attempt]], int]:
    """Return the name of an evaluation of a run, the last one if none is named, and its `read_questions`.

    Raises StoreError without a run, DataError if it has no such evaluation.
    """
    folder = RunFolder.open(run).path / "evaluations"
    names = sorted(file.name.removesuffix(".summary.json") for file in folder.glob("*.summary.json"))
    if not names or (evaluation and evaluation not in names):
        raise DataError(f"{run} has no evaluation {evaluation or 'at all'}; it has {', '.join(names) or 'none'}")
    name = evaluation or names[-1]
    return (name, *read_questions(load_groups(folder, name)))


def rate_ways(questions: Sequence[Sequence[Attempt]], *, seed: int = 0) -> list[Point]:
    """Return the success of every way to choose from 1, 2, 4, ... attempts, and of all of them, over the questions with
    the most attempts; the control and pass@n are exact, the others a mean over `NUM_DRAWS` draws of n attempts. The
    ways of `CONFIDENT` are left out if no attempt states a confidence: they would draw among the distinct answers.

    Raises DataError without questions.
    """
    if not questions:
        raise DataError("no question has a scored attempt; evaluate the run first")
    most = max(map(len, questions))
    whole = [attempts for attempts in questions if len(attempts) == most]
    states = any(attempt.stated.value is not None for attempts in whole for attempt in attempts)
    sizes = sorted({*(2**power for power in range(most.bit_length()) if 2**power <= most), most})
    return [
        _point(name, size, [_rate(name, attempts, size, seed, number) for number, attempts in enumerate(whole)], whole)
        for name in (*WAYS, BOUND)
        if states or name not in CONFIDENT
        for size in sizes
    ]


def rate_budgets(questions: Sequence[Sequence[Attempt]], budgets: Sequence[int]) -> list[Point]:
    """Return the share of attempts that are right within each number of searches. An attempt that was stopped there
    might have guessed: this is a lower bound of success under that budget, which an evaluation with `max_searches`
    measures."""
    return [
        _point(
            "right within",
            budget,
            [
                math.fsum(a.is_right and a.searches <= budget for a in attempts) / len(attempts)
                for attempts in questions
            ],
            questions,
        )
        for budget in budgets
    ]


def _rate(name: str, attempts: Sequence[Attempt], size: int, seed: int, number: int) -> float:
    right = sum(attempt.is_right for attempt in attempts)
    if name == BOUND:
        return compute_pass_at(size, num_samples=len(attempts), num_passed=right)
    choose = WAYS[name]
    if choose is choose_at_random:
        return right / len(attempts)
    random = rng(seed, "effort", name, size, number)
    chosen = [choose(random.sample(attempts, size), random) for _ in range(NUM_DRAWS)]
    return sum(attempt is not None and attempt.is_right for attempt in chosen) / NUM_DRAWS


def _point(way: str, size: int, shares: Sequence[float], questions: Sequence[Sequence[Attempt]]) -> Point:
    low, high = compute_wilson_interval(math.fsum(shares), len(shares))
    searches = math.fsum(sum(a.searches for a in each) / len(each) for each in questions) / max(1, len(questions))
    return Point(
        way=way,
        attempts=size,
        success=math.fsum(shares) / max(1, len(shares)),
        low=low,
        high=high,
        searches=searches * (1 if way == "right within" else size),
    )


def _vote(attempts: Sequence[Attempt], random: Random, weigh: Callable[[Attempt], float]) -> Attempt | None:
    sums: dict[str, float] = {}
    for attempt in attempts:
        if attempt.answer is not None:
            sums[attempt.answer] = sums.get(attempt.answer, 0.0) + weigh(attempt)
    if not sums:
        return None
    highest = max(sums.values())
    chosen = random.choice([answer for answer, total in sums.items() if total == highest])
    return next(attempt for attempt in attempts if attempt.answer == chosen)
