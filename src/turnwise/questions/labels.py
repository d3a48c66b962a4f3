"""Questions whose right verdicts are known, and how far a judge agrees with them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.messages import Message, text_message
from turnwise.core.verdicts import RATING, Form, Question, Verdict
from turnwise.questions.forms import criteria, match, pair

FIELDS = ("text", "messages", "answers", "rubric", "reference", "criteria", "label")
GOOD, BAD, NONE = "good", "bad", "none"
"""What a verdict that is a number is, from 0.5 and below it, and what a question without a verdict has."""
HALF = 0.5
_Z_95 = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A question and its right verdict."""

    question: Question
    label: str
    """A word of the form's only mark, or `GOOD` or `BAD`."""


def read_labelled(row: Mapping[str, Any]) -> Labelled:
    """Return a row of a file of labels. Raises DataError naming the field."""
    question = read_question(row)
    if "label" not in row:
        raise DataError("field 'label' is missing; write the right verdict")
    return Labelled(question=question, label=_read_label(row["label"], question.form))


def read_question(row: Mapping[str, Any]) -> Question:
    """Return the question of a row. Raises DataError naming the field."""
    for name in row:
        if name not in FIELDS:
            raise DataError(f"field {name!r} is none of {', '.join(FIELDS)}")
    return Question(
        messages=_read_messages(row),
        answers=tuple(_read_texts(row, "answers")),
        rubric=_read_text(row, "rubric"),
        form=_read_form(row),
    )


def name_verdict(score: float, marks: Sequence[tuple[str, str]], form: Form) -> str:
    """Return the word of the form's only mark, or whether the score is at least 0.5."""
    if len(form.marks) == 1 and form.marks[0].words:
        return dict(marks).get(form.marks[0].name, NONE)
    return GOOD if score >= HALF else BAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far verdicts agree with labels."""

    count: int
    equal: float
    """Share of equal pairs; a question without a verdict is never equal."""
    kappa: float
    """Cohen's kappa: agreement beyond what two judges with these shares of verdicts have by chance. 0 where either
    always says the same."""
    low: float
    """Lower end of kappa's 95% interval; `high` is the upper one."""
    high: float


def compute_agreement(labels: Sequence[str], said: Sequence[str]) -> Agreement:
    """Compare labels with what a judge said (Cohen 1960). The interval is Cohen's, normal, with the standard error
    sqrt(p (1 - p) / n) / (1 - chance). Raises ValueError for no labels."""
    count = len(labels)
    if not count:
        raise ValueError("there are no labels")
    equal = sum(a == b for a, b in zip(labels, said, strict=True)) / count
    ours, theirs = Counter(labels), Counter(said)
    chance = sum(ours[word] * theirs[word] for word in ours) / count**2
    if len(ours) == 1 or len(theirs) == 1:
        return Agreement(count=count, equal=equal, kappa=0.0, low=0.0, high=0.0)
    kappa = (equal - chance) / (1 - chance)
    margin = _Z_95 * math.sqrt(equal * (1 - equal) / count) / (1 - chance)
    return Agreement(
        count=count, equal=equal, kappa=kappa, low=max(-1.0, kappa - margin), high=min(1.0, kappa + margin)
    )


def name_answer(verdict: Verdict | None, form: Form) -> str:
    """Return what a judge said, `NONE` where it gave no verdict."""
    return NONE if verdict is None else name_verdict(verdict.score, verdict.marks, form)


def _read_form(row: Mapping[str, Any]) -> Form:
    given = [name for name in ("reference", "criteria", "answers") if name in row]
    if len(given) > 1:
        raise DataError(f"fields {given[0]!r} and {given[1]!r} ask different questions; keep one")
    if "reference" in row:
        return match(_read_text(row, "reference"))
    if "answers" in row:
        if len(_read_texts(row, "answers")) != 2:
            raise DataError("field 'answers' has to be two texts")
        return pair()
    if "criteria" in row:
        weights = row["criteria"]
        if not isinstance(weights, dict) or not all(isinstance(each, int | float) for each in weights.values()):
            raise DataError("field 'criteria' has to be an object of texts and weights")
        try:
            return criteria(weights)
        except ConfigError as problem:
            raise DataError(f"field 'criteria': {problem}") from None
    return RATING


def _read_messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    if ("text" in row) == ("messages" in row):
        raise DataError("write either field 'text' or field 'messages'")
    if "text" in row:
        return (text_message("user", _read_text(row, "text")),)
    said = row["messages"]
    roles = ("system", "user", "assistant", "tool")
    if not isinstance(said, list) or not said:
        raise DataError("field 'messages' has to be a list of messages")
    for number, each in enumerate(said):
        if not isinstance(each, dict) or each.get("role") not in roles or not isinstance(each.get("content"), str):
            raise DataError(f"field 'messages'[{number}] needs a role ({', '.join(roles)}) and a text as content")
    return tuple(text_message(each["role"], each["content"]) for each in said)


def _read_text(row: Mapping[str, Any], name: str) -> str:
    text = row.get(name, "")
    if not isinstance(text, str):
        raise DataError(f"field {name!r} is {text!r}; write a text")
    return text


def _read_texts(row: Mapping[str, Any], name: str) -> list[str]:
    texts = row.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"field {name!r} has to be a list of texts")
    return texts


def _read_label(label: object, form: Form) -> str:
    words = [word for word, _ in form.marks[0].words] if len(form.marks) == 1 else []
    if "yes" in words and label in (0, 1):
        return "yes" if label else "no"
    if words:
        if label not in words:
            raise DataError(f"field 'label' is {label!r}; write one of {', '.join(words)}")
        return str(label)
    if not isinstance(label, int | float) or not 0 <= label <= 1:
        raise DataError(f"field 'label' is {label!r}; write a number from 0 to 1")
    return GOOD if label >= HALF else BAD
