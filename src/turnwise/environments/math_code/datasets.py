r"""Mathematical problems from a user's JSONL or Parquet file, in our layout and the published ones.

    ours         {"question" or "prompt", "answers": [...][, "kind"]}
    GSM8K        {"question", "answer": "reasoning ... #### 72"}
    DAPO-Math    {"prompt": [{"role", "content"}] or "...", "reward_model": {"ground_truth": "34"}[, "data_source"]}
    MATH         {"problem", "solution": "... \boxed{3}"[, "answer"][, "type" or "subject"][, "level"]}
    AIME         {"problem", "answer"} or {"Problem", "Answer"}

Anything that does not fit raises DataError with file and row. Parquet needs pyarrow, an optional dependency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.environments.data_rows import load_rows
from turnwise.rewards.math_answer import extract_boxed

_LAYOUTS = '"answers", "reward_model", "answer", "Answer" or "solution"'
# DAPO-Math puts the problem between an instruction and a reminder, a blank line around it.
_DAPO_BEFORE, _DAPO_AFTER = "Solve the following math problem step by step.", "Remember to put your answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class MathRow:
    """One problem of a file."""

    question: str
    answers: tuple[str, ...]
    """Accepted answers, at least one."""
    kind: str
    """For grouping in reports: the row's kind (ours), data source (DAPO-Math), type or subject (MATH), else "file"."""


def load_problems(path: Path) -> tuple[MathRow, ...]:
    """The problems of a `.jsonl` or `.parquet` file, in order.

    Raises DataError: no such file, another ending, not UTF-8, no rows, or a malformed row. ConfigError for Parquet
    without pyarrow.
    """
    if path.suffix not in (".jsonl", ".parquet"):
        raise DataError(f"{path}: ends with {path.suffix!r}; give a .jsonl or .parquet file")
    return tuple(row for _, row in load_rows(path, to_math_row))


def to_math_row(row: Mapping[str, Any]) -> MathRow:
    """A row in any of the layouts. Raises DataError naming the field that is missing or wrong."""
    names = ("kind",) if "answers" in row else ("data_source", "type", "subject")
    kind = next((row[name] for name in names if row.get(name)), "file")
    return MathRow(question=_question(row), answers=_answers(row), kind=_text(kind, "kind"))


def _question(row: Mapping[str, Any]) -> str:
    for name in ("question", "problem", "Problem"):
        if name in row:
            return _text(row[name], name)
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        last = prompt[-1] if prompt else None
        prompt = last.get("content") if isinstance(last, dict) else None
    text = _text(prompt, "prompt")
    if text.startswith(_DAPO_BEFORE):
        text = text.partition("\n\n")[2].rpartition(_DAPO_AFTER)[0] or text
    return _text(text, "prompt without its instruction")


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    if "answers" in row:
        answers = row["answers"]
        if not isinstance(answers, list) or not answers:
            raise DataError(f'"answers" is {answers!r}; expected a list with at least one string')
        return tuple(_text(answer, f"answers[{index}]") for index, answer in enumerate(answers))
    if "reward_model" in row:
        model = row["reward_model"]
        return (_text(model.get("ground_truth") if isinstance(model, dict) else None, "reward_model.ground_truth"),)
    for name in ("answer", "Answer"):
        if name in row:
            value = row[name]
            text = str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value, name)
            return (_text(text.rpartition("####")[2], f"{name} after ####"),)
    if "solution" in row:
        boxed = extract_boxed(_text(row["solution"], "solution"))
        if boxed is None:
            raise DataError('"solution" has no \\boxed{}; give the answer as "answer"')
        return (_text(boxed, "the boxed answer of the solution"),)
    raise DataError(f"no answer among the keys {sorted(row)}; expected {_LAYOUTS}")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f'"{name}" is {value!r}; expected a non-empty string')
    return value.strip()
