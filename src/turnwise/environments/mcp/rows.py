"""Rows of tasks over servers' tools.

One JSON object per line: `question`, and as needed `answer` (a text or several), `setup` (calls that prepare the
episode), `bind` (tool parameters the environment fills in and the model never sees), `check` (arguments of the tool
that judges), `calls` (a solution, for the scripted policies), `kind` (the row of the report) and `images` (pictures,
shown where the question has `<image>`, else before it; `pictures.rows`). A call is `[name, {argument: value}]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from turnwise.config.section import Section
from turnwise.core.errors import DataError
from turnwise.core.messages import ImagePart, Message, Part, TextPart, join_texts, text_message
from turnwise.environments.data_rows import check_plain
from turnwise.environments.published_rows import is_blank
from turnwise.pictures.rows import MARKER, RowPictures, from_plain, to_plain

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
    images: list[dict[str, Any]] = Field(default_factory=list)
    """Digests and sizes of the pictures for each `<image>` in the question."""

    @property
    def answers(self) -> list[str]:
        """The accepted answers."""
        return [self.answer] if isinstance(self.answer, str) else self.answer


def take_pictures(row: dict[str, Any], folder: Path, *, pictures: RowPictures) -> dict[str, Any]:
    """Return a row whose pictures are in the column `images`, by digest, and whose question has an `<image>` for each.
    Raises as `RowPictures.take` does."""
    taken = pictures.take(row, ("question",), folder)
    shown = taken.get("question")
    if not isinstance(shown, list) or not all(isinstance(part, str | ImagePart) for part in shown):
        return taken
    plain = to_plain({"images": [part for part in shown if isinstance(part, ImagePart)]}, "question")
    question = "".join(part if isinstance(part, str) else MARKER for part in shown)
    return {name: value for name, value in taken.items() if name != "image"} | {"question": question, **plain}


def write_prompt(template: str, row: Row, pictures: RowPictures) -> Message:
    """Return the first message of a row: the template with its question, and its pictures in their places."""
    if not row.images:
        return text_message("user", template.replace("{question}", row.question))
    shown = from_plain({"images": row.images}, "question", pictures.find)["images"]
    before, _, after = template.partition("{question}")
    first, *texts = row.question.split(MARKER)
    parts: list[Part] = [TextPart(text=before + first)]
    for picture, text in zip(shown, texts, strict=True):
        parts += [picture, TextPart(text=text)]
    return Message(role="user", content=join_texts((*parts, TextPart(text=after))))


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
