r"""Mathematical problems from a user's file, in our layout and the published ones.

    ours         {"question" or "prompt", "answers": [...][, "kind"]}
    GSM8K        {"question", "answer": "reasoning ... #### 72"}
    DAPO-Math    {"prompt": [{"role", "content"}] or "...", "reward_model": {"ground_truth": "34"}[, "data_source"]}
    verl, SkyRL  the same, with "reward_spec" for "reward_model" in SkyRL
    MATH         {"problem", "solution": "... \boxed{3}"[, "answer"][, "type" or "subject"][, "level"]}
    AIME         {"problem", "answer"} or {"Problem", "Answer"}
    OpenAI       {"messages": [{"role", "content"}]} with an answer as in any of these

Any of them may have pictures (`pictures.rows`).

In a prompt of messages the last one is the question, and the earlier ones are kept before it. Anything that does not
fit raises DataError with file and row. Parquet needs pyarrow, an optional dependency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.types import Message, Part
from turnwise.environments.published_rows import (
    find_ground_truth,
    read_answers,
    read_asked,
    read_text,
    refuse_without_answer,
    shorten,
)
from turnwise.rewards.boxes import extract_boxed
from turnwise.rewards.math_spelling import says_nothing

QUESTIONS = ("question", "problem", "Problem")
"""Columns with a problem as text."""
_LAYOUTS = '"answers", "reward_model", "reward_spec", "answer", "Answer" or "solution"'
# DAPO-Math puts the problem between an instruction and a reminder, separated by blank lines.
_DAPO_BEFORE, _DAPO_AFTER = "Solve the following math problem step by step.", "Remember to put your answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class MathRow:
    """One problem from a file."""

    before: tuple[Message, ...] = ()
    """The system message and the turns before the problem; usually empty."""
    question: str
    shown: tuple[Part, ...] = ()
    """The parts of the problem if pictures are among them; else empty."""
    answers: tuple[str, ...]
    """Accepted answers, at least one."""
    kind: str
    """For grouping in reports: the row's kind (ours), data source (DAPO-Math), type or subject (MATH), else "file"."""

    @property
    def asks(self) -> tuple[object, ...]:
        """What the model reads: rows with equal values are copies."""
        return self.before, self.question, self.shown


def to_math_row(row: Mapping[str, Any]) -> MathRow:
    """Convert a row in any of the layouts. Raises DataError naming the field that is missing or wrong."""
    names = ("kind",) if "answers" in row else ("data_source", "type", "subject")
    kind = next((row[name] for name in names if row.get(name)), "file")
    asked = read_asked(row, QUESTIONS)
    text = asked.question
    if text.startswith(_DAPO_BEFORE) and not asked.shown:
        text = text.partition("\n\n")[2].rpartition(_DAPO_AFTER)[0] or text
    answers = _answers(row)
    if empty := next((answer for answer in answers if says_nothing(answer)), None):
        raise DataError(f"the answer {shorten(empty)} contains nothing to compare a reply with; correct it")
    return MathRow(
        before=asked.before,
        question=read_text(text, "prompt without its instruction"),
        shown=asked.shown,
        answers=answers,
        kind=read_text(kind, "kind"),
    )


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    if "answers" in row:
        answers = row["answers"]
        if not isinstance(answers, list) or not answers:
            raise DataError(f'"answers" is {shorten(answers)}; expected a list with at least one string')
        return read_answers(answers, "answers")
    if (truth := find_ground_truth(row)) is not None:
        return read_answers(truth[1], truth[0])
    for name in ("answer", "Answer"):
        if row.get(name) is not None:
            return tuple(_read_last(text, name) for text in read_answers(row[name], name))
    if row.get("solution") is not None:
        boxed = extract_boxed(read_text(row["solution"], "solution"))
        if boxed is None:
            raise DataError('"solution" has no \\boxed{}; put the answer in "answer"')
        return (read_text(boxed, "the boxed answer of the solution"),)
    raise refuse_without_answer(row, _LAYOUTS)


def _read_last(text: str, name: str) -> str:
    """Return the answer after GSM8K's mark, or the whole text if it is one line."""
    _, mark, last = text.rpartition("####")
    if not mark and "\n" in text:
        raise DataError(f'"{name}" is {shorten(text)}: several lines without ####; provide the answer alone')
    return read_text(last, f"{name} after ####")
