"""What a judge is asked and what it answers: data that is stored with the trajectory that was judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.core.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a judge is asked to score."""

    messages: tuple[Message, ...]
    """The conversation, or the single text, that is judged."""
    rubric: str = ""
    """What the judge is to look for; empty leaves it to the judge."""
    seed: int = 0
    """Seed of a judge that samples. An episode counts equal questions from 0; the run derives the judge's seed from
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge answers."""

    score: float
    """A finite number; the built-in judges give 0 to 1."""
    text: str = ""
    """What the judge wrote; empty if it only gives a number."""
    model: str = ""
    """The model that judged; empty if there is none."""
    seconds: float = 0.0
    """Seconds from the question to the verdict, without the wait for a free place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One question of an episode and its verdict."""

    judge: str
    """The judge's name in the recipe."""
    question: Question
    verdict: Verdict


def find_verdict(judgements: Sequence[Judgement], judge: str, question: Question) -> Verdict | None:
    """Return the verdict on an equal question to this judge; None if there is none."""
    return next((each.verdict for each in judgements if (each.judge, each.question) == (judge, question)), None)
