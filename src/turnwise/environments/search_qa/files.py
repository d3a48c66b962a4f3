"""A user's own corpus and questions from JSONL or Parquet files, in our layout and the published ones.

    corpus      {"id", "title", "text"}
    questions   {"question" or "prompt", "answers"[, "kind"]}                                          ours
                {"question", "golden_answers"} or
                {"prompt": [{"role", "content"}], "reward_model": {"ground_truth": {"target": [...]}}}  Search-R1
                {"question", "answer": "...", "type", "level"}                                         HotpotQA
                {"question": "..." or {"text": "..."}, "answer": [...]}                                Natural Questions

Blank lines are skipped; anything else that does not fit raises DataError with file and line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.environments.data_rows import load_rows
from turnwise.environments.search_qa.corpus import Passage

_QUESTION_LAYOUTS = '"answers", "golden_answers", "reward_model" or "answer"'


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow:
    """One question of a file."""

    question: str
    answers: tuple[str, ...]
    """Accepted answers, at least one."""
    kind: str
    """For grouping in reports: the row's kind (ours) or type (HotpotQA), else "file"."""


def load_corpus(path: Path) -> tuple[Passage, ...]:
    """The passages of a file, in order.

    Raises DataError: no such file, not UTF-8, no rows, a malformed row, or an id given twice.
    """
    passages = load_rows(path, _to_passage)
    lines: dict[str, int] = {}
    for line, passage in passages:
        if passage.id in lines:
            raise DataError(
                f"{path}:{line}: id {passage.id!r} is also that of line {lines[passage.id]}; give every passage "
                "its own id"
            )
        lines[passage.id] = line
    return tuple(passage for _, passage in passages)


def load_questions(path: Path) -> tuple[QuestionRow, ...]:
    """The questions of a file, in order. Raises DataError for no file, no UTF-8, no rows or a malformed row."""
    return tuple(row for _, row in load_rows(path, _to_question))


def _to_passage(row: dict[str, Any]) -> Passage:
    identity = row.get("id")
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        raise DataError(f'"id" is {identity!r}; expected a string or a whole number')
    return Passage(str(identity), _text(row.get("title"), "title", may_be_empty=True), _text(row.get("text"), "text"))


def _to_question(row: dict[str, Any]) -> QuestionRow:
    kind = row.get("kind") if "answers" in row else row.get("type")
    return QuestionRow(
        question=_question(row),
        answers=_answers(row),
        kind="file" if kind is None else _text(kind, "kind" if "answers" in row else "type"),
    )


def _question(row: dict[str, Any]) -> str:
    question = row.get("question")
    if question is None and "prompt" in row:
        prompt = row["prompt"]
        last = prompt[-1] if isinstance(prompt, list) and prompt else None
        content = _text(last.get("content") if isinstance(last, dict) else None, "prompt[-1].content")
        return _text(content.rpartition("Question:")[2], "prompt[-1].content after 'Question:'").strip()
    if isinstance(question, dict):
        return _text(question.get("text"), "question.text").strip()
    return _text(question, "question").strip()


def _answers(row: dict[str, Any]) -> tuple[str, ...]:
    names = ("answers", "golden_answers", "reward_model", "answer")
    name: str | None = next((name for name in names if name in row), None)
    if name is None:
        raise DataError(f"no answers among the keys {sorted(row)}; expected {_QUESTION_LAYOUTS}")
    value = row[name]
    if name == "reward_model":
        name = "reward_model.ground_truth.target"
        for key in ("ground_truth", "target"):
            value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, str) and name != "answers":
        value = [value]
    if not isinstance(value, list) or not value:
        raise DataError(f'"{name}" is {value!r}; expected a list with at least one string')
    return tuple(_text(answer, f"{name}[{index}]") for index, answer in enumerate(value))


def _text(value: object, name: str, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or not (value.strip() or may_be_empty):
        raise DataError(f'"{name}" is {value!r}; expected {"a string" if may_be_empty else "a non-empty string"}')
    return value
