"""A user's own corpus and questions from files, in our layout and the published ones.

    corpus      {"id", "title", "text"}
    questions   {"question" or "prompt", "answers"[, "kind"]}                                          ours
                {"question", "golden_answers"} or
                {"prompt": [{"role", "content"}], "reward_model": {"ground_truth": {"target": [...]}}}  Search-R1
                the same with "reward_spec" for "reward_model"                                         SkyRL
                {"question", "answer": "...", "type", "level"}                                         HotpotQA
                {"question": "..." or {"text": "..."}, "answer": [...]}                                Natural Questions
                {"question", "answers": {"text": [...]}}                                               SQuAD
                {"question", "answer": {"value", "aliases": [...]}}                                    TriviaQA
                {"question", "answer", "answer_aliases": [...]}                                        MuSiQue
                {"messages": [{"role", "content"}]} with answers as in any of these                    OpenAI

In a prompt of messages the last one is the question, and the earlier ones are kept before it. Blank lines are skipped;
anything else that does not fit raises DataError with file and line. Questions may have pictures (`pictures.rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.types import Message, Part
from turnwise.environments.data_rows import RowFile, load_file, load_rows
from turnwise.environments.published_rows import (
    find_ground_truth,
    read_answers,
    read_asked,
    read_text,
    refuse_without_answer,
    shorten,
)
from turnwise.environments.search_qa.corpus import Passage

QUESTIONS = ("question",)
"""Columns with a question as text."""
_QUESTION_LAYOUTS = '"answers", "golden_answers", "reward_model", "reward_spec" or "answer"'
_MARK = "Question:"
"""The mark before the question in prompts of Search-R1's kind, including ours."""
_SIGNS = ("<answer>", "Answer the given question")
"""Such a prompt explains the tag for the answer, or begins like Search-R1's; in any other prompt a mark belongs to the
user's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow:
    """One question from a file."""

    before: tuple[Message, ...] = ()
    """The system message and the turns before the question; usually empty."""
    question: str
    shown: tuple[Part, ...] = ()
    """The parts of the question if pictures are among them; else empty."""
    answers: tuple[str, ...]
    """Accepted answers, at least one."""
    kind: str
    """For grouping in reports: the row's kind (ours) or type (HotpotQA), else "file"."""

    @property
    def asks(self) -> tuple[object, ...]:
        """What the model reads: rows with equal values are copies."""
        return self.before, self.question, self.shown


def load_corpus(path: Path, *, max_bad_share: float = 0.0) -> RowFile[Passage]:
    """Load the passages of a file, in order. Raises as `load_file` does, and DataError for a repeated id."""
    file = load_file(path, to_passage, max_bad_share=max_bad_share)
    lines: dict[str, int] = {}
    for line, passage in zip(file.numbers, file.rows, strict=True):
        if passage.id in lines:
            raise DataError(
                f"{path}:{line}: id {passage.id!r} is already used in line {lines[passage.id]}; give every passage its "
                "own id"
            )
        lines[passage.id] = line
    return file


def load_questions(path: Path) -> tuple[QuestionRow, ...]:
    """Load the questions of a file, in order, without leaving any out. Raises as `load_rows` does."""
    return tuple(row for _, row in load_rows(path, to_question))


def to_passage(row: Mapping[str, Any]) -> Passage:
    """Convert a row of a corpus. Raises DataError naming the field that is missing or wrong."""
    identity = row.get("id")
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        raise DataError(f'"id" is {shorten(identity)}; expected a string or a whole number')
    title, text = row.get("title"), row.get("text")
    if not isinstance(title, str):
        raise DataError(f'"title" is {shorten(title)}; expected a string')
    if not isinstance(text, str) or not text.strip():
        raise DataError(f'"text" is {shorten(text)}; expected a non-empty string')
    return Passage(str(identity), title, text)


def to_question(row: Mapping[str, Any]) -> QuestionRow:
    """Convert a row in any of the layouts. Raises DataError naming the field that is missing or wrong."""
    name = "kind" if "answers" in row else "type"
    kind, question = row.get(name), row.get("question")
    if isinstance(question, dict):  # Natural Questions
        row = {**row, "question": question.get("text")}
    asked = read_asked(row, QUESTIONS)
    text = asked.question
    head, mark, tail = text.partition(_MARK)
    if mark and not asked.shown and (not head.strip() or any(sign in head for sign in _SIGNS)):
        text = tail
    return QuestionRow(
        before=asked.before,
        question=read_text(text, "question after 'Question:'"),
        shown=asked.shown,
        answers=_answers(row),
        kind="file" if kind is None else read_text(kind, name),
    )


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    truth = None if row.keys() & {"answers", "golden_answers"} else find_ground_truth(row)
    if truth is not None:
        return read_answers(truth[1], truth[0])
    name = next((name for name in ("answers", "golden_answers", "answer") if row.get(name) is not None), None)
    if name is None:
        raise refuse_without_answer(row, _QUESTION_LAYOUTS)
    value, aliases = row[name], row.get("answer_aliases") if name == "answer" else None
    if isinstance(value, Mapping):
        key = "text" if name == "answers" else "value"
        name, aliases, value = f"{name}.{key}", value.get("aliases"), value.get(key)
    elif name == "answers" and not isinstance(value, list):
        raise DataError(f'"{name}" is {shorten(value)}; expected a list with at least one string')
    answers = read_answers(value, name)
    return tuple(dict.fromkeys((*answers, *(read_answers(aliases, "aliases") if aliases else ()))))
