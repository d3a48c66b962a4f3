"""Common parts of published row layouts: prompts of several messages, and right answers.

    prompt    "...", or messages [{"role", "content"}], whose content is text or parts {"type": "text", "text"}; with
              pictures where the family shows them (`pictures.rows`)
    answers   "answers", or the `ground_truth` of "reward_model" (verl) or "reward_spec" (SkyRL): a text, a number, a
              list of these, or {"target": any of them}

All functions raise DataError naming the field, its value and what was expected.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.messages import join_texts
from turnwise.core.types import ImagePart, Message, Part, Role, TextPart, text_message
from turnwise.pictures.rows import Row, RowPictures

ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Maps roles in a row's prompt to ours; "developer" is a newer name of "system"."""
_PROMPTS = ("prompt", "messages", "conversations")
_HERE = "\0"
_GROUND_TRUTHS = ("reward_model", "reward_spec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The question of a row."""

    before: tuple[Message, ...]
    """The system message and the turns before the question; usually empty."""
    question: str
    """The text of the last message."""
    shown: tuple[Part, ...] = ()
    """The parts of the last message if pictures are among them; else empty."""


def take_pictures(row: Row, folder: Path, *, names: tuple[str, ...], pictures: RowPictures) -> Row:
    """Return a row with its pictures at their places in what `read_asked` reads. Raises as `RowPictures.take` does."""
    for name in _PROMPTS:
        if isinstance(given := _read_listed(row.get(name)), list):
            return pictures.take({**row, name: given}, (name,), folder)
    return pictures.take(row, (*names, "prompt"), folder)


def fill_template(template: str, question: str, shown: Sequence[Part]) -> Message:
    """Return the user message that a template with `{question}` makes of a question: its text, or what is shown."""
    if not shown:
        return text_message("user", template.format(question=question))
    before, _, after = template.format(question=_HERE).partition(_HERE)
    return Message(role="user", content=join_texts((TextPart(text=before), *shown, TextPart(text=after))))


def read_asked(row: Mapping[str, Any], names: tuple[str, ...]) -> Asked:
    """Return the row's messages, or the text in the first existing column of `names`; a prompt of messages takes
    precedence."""
    for name in _PROMPTS:
        if isinstance(given := _read_listed(row.get(name)), list):
            messages = read_messages(given, name)
            if messages[-1].role != "user":
                raise DataError(
                    f'"{name}" ends with a message from {messages[-1].role!r}; expected a user message at the end (a '
                    "partial reply is not continued)"
                )
            return _to_asked(messages[:-1], messages[-1], f"{name}[-1].content")
    for name in (*names, "prompt"):
        if isinstance(row.get(name), list) and any(isinstance(part, ImagePart) for part in row[name]):
            return _to_asked((), Message(role="user", content=_read_parts(row[name], name)), name)
        if row.get(name) is not None:
            return Asked(before=(), question=read_text(row[name], name))
    raise DataError(f"no question under the keys {list_keys(row)}; expected {', '.join((*names, 'prompt'))}")


def _to_asked(before: tuple[Message, ...], last: Message, name: str) -> Asked:
    return Asked(before=before, question=read_text(last.text, name), shown=last.content if last.images else ())


def _read_listed(value: object) -> object:
    """Return messages that a text column contains as JSON, as in Parquet files of several layouts; other values
    unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith("[{"):
        return value
    try:
        listed = json.loads(value)
        json.dumps(listed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DataError("half of a surrogate pair in the text of messages; write the whole character") from None
    except (ValueError, RecursionError):
        return value
    are_messages = isinstance(listed, list) and all(isinstance(each, dict) and "role" in each for each in listed)
    return listed if are_messages else value


def read_messages(value: object, name: str) -> tuple[Message, ...]:
    """Read a list of at least one text message."""
    if not isinstance(value, list) or not value:
        raise DataError(f'"{name}" is {shorten(value)}; expected a list of messages {{"role", "content"}}')
    return tuple(_read_message(message, f"{name}[{index}]") for index, message in enumerate(value))


def _read_message(message: object, place: str) -> Message:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(role, str) or role not in ROLES:
        raise DataError(f'"{place}" is {shorten(message)}; expected {{"role", "content"}} with role {", ".join(ROLES)}')
    others = sorted(str(key) for key, item in message.items() if key not in ("role", "content") and item)
    if others:
        raise DataError(f'"{place}" has {others}; expected a text message with only "role" and "content"')
    content = message.get("content")
    if isinstance(content, list):
        return Message(role=ROLES[role], content=_read_parts(content, f"{place}.content"))
    if not isinstance(content, str):
        raise DataError(f'"{place}.content" is {shorten(content)}; expected text')
    return text_message(ROLES[role], content)


def _read_parts(content: list[Any], place: str) -> tuple[Part, ...]:
    """Return pictures that were taken from the row, and the texts before, between and after them, joined."""
    has_pictures = any(isinstance(part, ImagePart) for part in content)
    parts: list[Part] = []
    for index, part in enumerate(content):
        if isinstance(part, ImagePart):
            parts.append(part)
        elif has_pictures and isinstance(part, str):  # a text around a picture's mark
            parts.append(TextPart(text=part))
        elif isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
            parts.append(TextPart(text=part["text"]))
        else:
            raise DataError(
                f'"{place}[{index}]" is {shorten(part)}; expected {{"type": "text", "text"}}: prompts contain only text'
            )
    return join_texts(parts)


def find_ground_truth(row: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the name and value of a `ground_truth`; None if the row has no column for one."""
    for name in _GROUND_TRUTHS:
        if name in row:
            place, value = f"{name}.ground_truth", _read_written(row[name], "ground_truth")
            value = value.get("ground_truth") if isinstance(value, Mapping) else None
            value = _read_written(value, "target")
            if isinstance(value, Mapping):
                place, value = f"{place}.target", value.get("target")
            return place, value
    return None


def _read_written(value: Any, name: str) -> Any:
    """Return the object that a text column contains as JSON, if it has the field `name`; other values unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return value
    try:
        written = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return written if isinstance(written, dict) and name in written else value


def read_answers(value: object, name: str) -> tuple[str, ...]:
    """Return texts and numbers, one or a list of at least one; numbers as Python writes them."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise DataError(f'"{name}" is []; expected at least one answer')
    if len(values) == 1:
        return (_read_answer(values[0], name),)
    return tuple(_read_answer(each, f"{name}[{index}]") for index, each in enumerate(values))


def _read_answer(value: object, name: str) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and (isinstance(value, int) or math.isfinite(value)):  # type: ignore[arg-type]
        return str(value)
    if not isinstance(value, str) or is_blank(value):
        raise DataError(f'"{name}" is {shorten(value)}; expected text or a number')
    return value.strip()


def refuse_without_answer(row: Mapping[str, Any], expected: str) -> DataError:
    """Return the error for a row without an answer in any column."""
    if "chosen" in row or "rejected" in row:
        return DataError('"chosen" and "rejected" are preferences between replies; expected a correct answer')
    if "completion" in row or "messages" in row:
        return DataError(f"the row is a demonstration without a correct answer to score against; expected {expected}")
    return DataError(f"no answer under the keys {list_keys(row)}; expected {expected}")


def read_text(value: object, name: str) -> str:
    """Return a non-blank text without surrounding whitespace."""
    if not isinstance(value, str) or is_blank(value):
        raise DataError(f'"{name}" is {shorten(value)}; expected a non-empty string')
    return value.strip()


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character: only spaces, line ends and zero-width characters."""
    return all((kind := unicodedata.category(each)).startswith("Z") or kind in ("Cc", "Cf") for each in text)


def list_keys(row: Mapping[str, Any]) -> str:
    """List the row's columns, truncated if they are many."""
    return shorten(sorted(map(str, row)))


def shorten(value: object) -> str:
    """Return the value as Python writes it, truncated after 80 characters."""
    text = repr(value[:80] if isinstance(value, str | list) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."
