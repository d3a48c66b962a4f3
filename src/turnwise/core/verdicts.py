"""What a judge is asked and what it answers: data that is stored with the trajectory that was judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnwise.core.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One thing that a verdict states, as a line `name: value`."""

    name: str
    words: tuple[tuple[str, float], ...] = ()
    """The words that it may be, with the number from 0 to 1 that each counts; empty for a number from 0 to 1."""
    weight: float = 1.0
    """Its weight in the score; below 0 for what should not be the case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a verdict has to state, and how that becomes a score (`questions.forms` builds them)."""

    marks: tuple[Mark, ...]
    """Without marks, any text is the verdict, with the score 1."""
    task: str = ""
    """What the judge is told about the marks, after the rubric."""

    def score(self, values: Sequence[float]) -> float:
        """Return the score for the values of the marks in their order: their weighted sum, divided by the sum of the
        weights above 0, and at least 0."""
        if not self.marks:
            return 1.0
        whole = sum(max(mark.weight, 0.0) for mark in self.marks)
        total = sum(mark.weight * value for mark, value in zip(self.marks, values, strict=True))
        return max(0.0, total / whole)


RATING = Form(marks=(Mark(name="score"),), task="The score is 0 for bad and 1 for good.")
"""One number: the form of a question that has no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a judge is asked to score."""

    messages: tuple[Message, ...]
    """The conversation, or the single text, that is judged, or of which `answers` are answers."""
    answers: tuple[str, ...] = ()
    """Texts that are compared, numbered from 1."""
    rubric: str = ""
    """What the judge is to look for; empty leaves it to the judge."""
    form: Form = RATING
    """What the verdict states."""
    seed: int = 0
    """Seed of a judge that samples. An episode counts equal questions from 0; the run derives the judge's seed from
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an answer took."""

    attempts: int = 1
    """0 for a verdict from the cache, above 1 where a question was repeated."""
    prompt_tokens: int = 0
    reply_tokens: int = 0
    cost: float = 0.0
    """Money, by the judge's prices."""

    def plus(self, other: Usage) -> Usage:
        """Return both together."""
        return Usage(
            attempts=self.attempts + other.attempts,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            reply_tokens=self.reply_tokens + other.reply_tokens,
            cost=self.cost + other.cost,
        )


NOTHING_USED = Usage(attempts=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge answers."""

    score: float
    """A finite number; the built-in judges give 0 to 1."""
    marks: tuple[tuple[str, str], ...] = ()
    """Name and value of every mark of the form, as written; empty of a judge that only gives a number."""
    text: str = ""
    """What the judge wrote; empty if it only gives a number."""
    model: str = ""
    """The model that judged; empty if there is none."""
    seconds: float = 0.0
    """Seconds from the question to the verdict, without the wait for a free place."""
    usage: Usage = field(default_factory=Usage)

    def mark(self, name: str) -> str:
        """Return what was written for a mark. Raises KeyError if the verdict has none of this name."""
        return dict(self.marks)[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One question of an episode and its verdict."""

    judge: str
    """The judge's name in the recipe."""
    question: Question
    verdict: Verdict | None
    """None if there was none."""
    problem: str = ""
    """Why there is no verdict."""
    usage: Usage = field(default_factory=Usage)
    """What question and repetitions took, with a verdict or without."""
    truth: float | None = None
    """The right score, where the environment knows it and told; no judge reads it."""


def find_verdict(judgements: Sequence[Judgement], judge: str, question: Question) -> Verdict | None:
    """Return the verdict on an equal question to this judge; None if there is none."""
    return next((each.verdict for each in judgements if (each.judge, each.question) == (judge, question)), None)
