"""Rows of tasks over servers' tools.

One JSON object per line: `question`, and as needed `answer` (a text or several), `setup` (calls that prepare the
episode), `bind` (tool parameters the environment fills in and the model never sees), `check` (arguments of the tool
that judges), `calls` (a solution, for the scripted policies) and `kind` (the row of the report). A call is
`[name, {argument: value}]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from turnwise.config.section import Section
from turnwise.core.errors import DataError
from turnwise.environments.data_rows import check_plain
from turnwise.environments.published_rows import is_blank

Call = list[Any]
_CALLS = TypeAdapter(list[tuple[str, dict[str, Any]]])


class Row(Section):
    """One task."""

    question: str
    answer: str | list[str] = Field(default_factory=list)
    """Accepted answers; empty if the reward needs none."""
    setup: list[Call] = Field(default_factory=list)
    """Calls made when the episode opens, by the servers' names; the model does not see them."""
    bind: dict[str, Any] = Field(default_factory=dict)
    """Values of all tool parameters with these names, which the model is not shown."""
    check: dict[str, Any] = Field(default_factory=dict)
    calls: list[Call] = Field(default_factory=list)
    """Calls of a solution, by the names that the model sees; its answer is the row's first."""
    kind: str = ""

    @property
    def answers(self) -> list[str]:
        """The accepted answers."""
        return [self.answer] if isinstance(self.answer, str) else self.answer


def to_row(row: Mapping[str, Any], *, needs_answer: bool) -> Row:
    """Convert a row of a file. Raises DataError naming the field, also if an answer is needed and the row has none."""
    check_plain(row)
    try:
        checked = Row.model_validate(row)
        for calls in (checked.setup, checked.calls):
            _CALLS.validate_python(calls)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "the row"
        raise DataError(f"{place}: {problem['msg']}; a row is an object with question, answer, calls") from None
    for name, texts in (("question", [checked.question]), ("answer", checked.answers)):
        if blank := [text for text in texts if is_blank(text)]:
            raise DataError(f"{name} is {blank[0]!r}; write text" + (", or leave it out" if name == "answer" else ""))
    if needs_answer and not checked.answers:
        raise DataError("no answer, which the reward needs; add one, or judge with a tool or a function")
    return checked


def from_payload(payload: Mapping[str, Any]) -> Row:
    """Return the row in a task's payload."""
    return Row.model_validate({name: payload[name] for name in Row.model_fields if name in payload})


def list_calls(rows: Sequence[Row]) -> list[tuple[str, dict[str, Any]]]:
    """Return every call of some rows' solutions, in order."""
    return [(name, arguments) for row in rows for name, arguments in row.calls]
