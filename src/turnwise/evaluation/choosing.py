"""What choosing one of several attempts is worth over tasks: by vote, or by a score that trajectories carry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.types import Trajectory
from turnwise.evaluation.attempts import compute_best_of, compute_majority_at
from turnwise.evaluation.intervals import compute_clustered_interval
from turnwise.evaluation.paired import compute_difference
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise.rewards.normal_form import normalize_answer

VOTE = "vote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One scored attempt at a task, as far as choosing among attempts needs it."""

    success: float
    answer: str | None
    """In normal form; None if it gave none."""
    scores: Mapping[str, float]
    """By name; see `read_scores`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Success of the one attempt of k that is chosen, in expectation over every k of a task's attempts."""

    by: str
    """ "vote": the most frequent answer (maj@k). Otherwise a score: the highest (best-of-k)."""
    k: int
    n: int
    """Number of tasks with that many scored attempts that all have what is needed."""
    share: float
    low: float
    high: float
    """`low` to `high` is the 95% interval of `share`."""
    control: float
    """Success of an attempt that is chosen by random scores: the mean, on the same tasks."""
    gain_low: float
    gain_high: float
    """`gain_low` to `gain_high` is the 95% interval of `share` - `control`, of paired tasks; (-1, 1) for one
    cluster."""


def read_attempt(episode: Sequence[Trajectory], success: float) -> Attempt:
    """Return what choosing needs of an episode: nothing but its success if several of its roles are measured."""
    if len(episode) > 1:
        return Attempt(success=success, answer=None, scores={})
    return Attempt(success=success, answer=read_answer(episode[0]), scores=read_scores(episode[0]))


def read_answer(trajectory: Trajectory) -> str | None:
    """Return the final answer in normal form (`rewards.answers.final_answer`); None if there is none."""
    replies = [turn.message for turn in trajectory.turns]
    answer = final_answer(AnswerCase(replies=replies, golds=(), stop=trajectory.stop))
    return None if answer is None else normalize_answer(answer)


def read_scores(trajectory: Trajectory) -> dict[str, float]:
    """Return the scores that a trajectory carries: "likelihood", the mean log-probability of its sampled tokens, and
    "process", a process reward model's score of its last turn, if there is one."""
    logprobs = [float(value) for turn in trajectory.turns for value in turn.completion.logprobs]
    scores = {"likelihood": math.fsum(logprobs) / len(logprobs)} if logprobs else {}
    process = trajectory.turns[-1].scores.process_score if trajectory.turns else None
    if process is not None:
        scores["process"] = process
    return {name: value for name, value in scores.items() if not math.isnan(value)}


def list_chosen(clusters: Sequence[Sequence[Sequence[Attempt]]], counts: Sequence[int]) -> tuple[Chosen, ...]:
    """Return a row for every way to choose and every k of `counts`, from the attempts of tasks in clusters; none for a
    way that no task allows."""
    every = [attempt for cluster in clusters for task in cluster for attempt in task]
    names = [VOTE] if any(attempt.answer is not None for attempt in every) else []
    names += sorted({name for attempt in every for name in attempt.scores})
    rows = (_rate(name, k, clusters) for name in names for k in counts)
    return tuple(row for row in rows if row is not None)


def _rate(by: str, k: int, clusters: Sequence[Sequence[Sequence[Attempt]]]) -> Chosen | None:
    able = [[task for task in cluster if _allows(by, k, task)] for cluster in clusters]
    able = [cluster for cluster in able if cluster]
    if not able:
        return None
    values = [[_choose(by, k, task) for task in cluster] for cluster in able]
    controls = [[math.fsum(each.success for each in task) / len(task) for task in cluster] for cluster in able]
    gains = [
        [value - control for value, control in zip(*pair, strict=True)] for pair in zip(values, controls, strict=True)
    ]
    gain = compute_difference(gains) if len(gains) > 1 else None
    count = sum(map(len, able))
    low, high = compute_clustered_interval(values)
    return Chosen(
        by=by,
        k=k,
        n=count,
        share=math.fsum(value for cluster in values for value in cluster) / count,
        low=low,
        high=high,
        control=math.fsum(value for cluster in controls for value in cluster) / count,
        gain_low=gain.low if gain else -1.0,
        gain_high=gain.high if gain else 1.0,
    )


def _allows(by: str, k: int, task: Sequence[Attempt]) -> bool:
    return len(task) >= k and (by == VOTE or all(by in attempt.scores for attempt in task))


def _choose(by: str, k: int, task: Sequence[Attempt]) -> float:
    successes = [attempt.success for attempt in task]
    if by == VOTE:
        value = compute_majority_at(k, [attempt.answer for attempt in task], successes)
    else:
        value = compute_best_of(k, [attempt.scores[by] for attempt in task], successes)
    return min(1.0, max(0.0, value))  # rounding
